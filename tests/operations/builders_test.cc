// SPDX-License-Identifier: Apache-2.0
// Every builder of the public headers: operands that are no values of one graph are refused with
// the operation's operands and the caller's line, whichever operand it is and however many there
// are. What the headers declare and the table below lacks fails a test.
#include "coda/builders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "coda/error.h"
#include "coda/graph.h"
#include "coda/operation.h"

namespace coda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Values = std::vector<Value>;

struct Builder {
  std::string name;
  Values operands;
  std::function<void(const Values&)> build;
};

// A graph with operands for all builders, and each builder with operands that it takes.
class Builders {
 public:
  Graph g;

  std::vector<Builder> all() {
    std::vector<Builder> list;
    const auto unary = [&](const char* name, Value (*build)(Value, Where)) {
      list.push_back({name, {x}, [build](const Values& v) { build(v[0], Where::current()); }});
    };
    const auto binary = [&](const char* name, Value (*build)(Value, Value, Where)) {
      list.push_back(
          {name, {x, y}, [build](const Values& v) { build(v[0], v[1], Where::current()); }});
    };
    binary("add", add);
    binary("sub", sub);
    binary("mul", mul);
    binary("div", div);
    unary("neg", neg);
    unary("exp", exp);
    unary("log", log);
    unary("rsqrt", rsqrt);
    unary("sqrt", sqrt);
    unary("recip", recip);
    unary("sigmoid", sigmoid);
    unary("tanh", tanh);
    unary("erf", erf);
    unary("silu", silu);
    unary("gelu", gelu);
    unary("gelu_tanh", gelu_tanh);
    unary("row_sum", row_sum);
    unary("col_sum", col_sum);
    unary("row_reduce",
          [](Value v, Where where) { return row_reduce(v, PartialKind::abs_max, where); });
    unary("col_reduce",
          [](Value v, Where where) { return col_reduce(v, PartialKind::abs_max, where); });
    unary("row_mean", row_mean);
    unary("row_entropy", row_entropy);
    unary("row_logsumexp", row_logsumexp);
    unary("row_m2", row_m2);
    binary("swiglu", swiglu);
    binary("geglu", geglu);
    list.insert(list.end(),
                {{"elementwise", {x, y}, [](const Values& v) { elementwise(Elementwise::max, v); }},
                 {"select", {x, y, x}, [](const Values& v) { select(v[0], v[1], v[2]); }},
                 {"maximum", {x, y}, [](const Values& v) { maximum(v[0], v[1]); }},
                 {"minimum", {x, y}, [](const Values& v) { minimum(v[0], v[1]); }},
                 {"equal", {x, y}, [](const Values& v) { equal(v[0], v[1]); }},
                 {"less", {x, y}, [](const Values& v) { less(v[0], v[1]); }},
                 {"operator+", {x, y}, [](const Values& v) { v[0] + v[1]; }},
                 {"operator-", {x, y}, [](const Values& v) { v[0] - v[1]; }},
                 {"operator-", {x}, [](const Values& v) { -v[0]; }},
                 {"operator*", {x, y}, [](const Values& v) { v[0] * v[1]; }},
                 {"operator/", {x, y}, [](const Values& v) { v[0] / v[1]; }},
                 {"select_column", {x, i}, [](const Values& v) { select_column(v[0], v[1]); }},
                 {"group_sum", {x}, [](const Values& v) { group_sum(v[0], 4); }},
                 {"group_repeat", {x}, [](const Values& v) { group_repeat(v[0], 4); }},
                 {"matmul",
                  {x, w, y, w},
                  [](const Values& v) {
                    matmul({{v[0], v[1], {false, true}}, {v[2], v[3], {false, true}}});
                  }},
                 {"linear", {x, w}, [](const Values& v) { linear(v[0], v[1]); }},
                 {"conv1d", {x, w}, [](const Values& v) { conv1d(v[0], v[1]); }},
                 {"split_pair", {x}, [](const Values& v) { split_pair(v[0], 4, 1); }},
                 {"merge_pairs", {x, y}, [](const Values& v) { merge_pairs(v[0], v[1], 4); }},
                 {"slice_columns", {x}, [](const Values& v) { slice_columns(v[0], 2, 3); }},
                 {"concat_columns", {x, y, x}, [](const Values& v) { concat_columns(v); }},
                 {"repeat_columns", {x}, [](const Values& v) { repeat_columns(v[0], 3); }},
                 {"gather_rows", {w, i}, [](const Values& v) { gather_rows(v[0], v[1]); }},
                 {"transpose", {scale}, [](const Values& v) { transpose(v[0]); }},
                 {"rms_norm", {x, scale}, [](const Values& v) { rms_norm(v[0], v[1], 1e-5); }},
                 {"rms_reciprocal", {x}, [](const Values& v) { rms_reciprocal(v[0], 1e-5); }},
                 {"layer_norm",
                  {x, scale, scale},
                  [](const Values& v) { layer_norm(v[0], v[1], v[2], 1e-5); }},
                 {"rope",
                  {x, table, table, i},
                  [](const Values& v) { rope(v[0], {v[1], v[2], v[3]}, 2, 4); }},
                 {"attention",
                  {x, y, x},
                  [](const Values& v) {
                    attention(v[0], v[1], v[2],
                              {.heads = 2, .kv_heads = 2, .head_dim = 4, .sequence = "T"});
                  }},
                 {"embedding", {w, i}, [](const Values& v) { embedding(v[0], v[1]); }},
                 {"top_k_mask", {x}, [](const Values& v) { top_k_mask(v[0], 3); }},
                 {"marked_rows", {x}, [](const Values& v) { marked_rows(v[0], 64); }},
                 {"gather", {x, rows}, [](const Values& v) { gather(v[0], v[1]); }},
                 {"scatter_add", {x, rows}, [](const Values& v) { scatter_add(v[0], v[1], 64); }},
                 {"soft_cap", {x}, [](const Values& v) { soft_cap(v[0], 30); }},
                 {"cross_entropy", {x, i}, [](const Values& v) { cross_entropy(v[0], v[1]); }},
                 {"opaque_call", {w, i}, [](const Values& v) { opaque_call("embedding", v); }}});
    return list;
  }

 private:
  Value x = g.input("x", {"M", 8});
  Value y = g.input("y", {"M", 8});
  Value i = g.table("i", {"M", 1}, DType::i32);
  Value rows = g.input("rows", {"M", 1});
  Value w = g.parameter("w", {8, 8});
  Value scale = g.parameter("scale", {1, 8});
  Value table = g.table("table", {64, 2});
};

std::string message_of(const Builder& builder, const Values& operands) {
  try {
    builder.build(operands);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(EveryBuilder, TakesValuesOfOneGraph) {
  Builders ours;
  for (const Builder& builder : ours.all())
    EXPECT_EQ(message_of(builder, builder.operands), "accepted") << builder.name;
}

TEST(EveryBuilder, RefusesAValueOfAnotherGraphOrOfNoneWithTheCallersLine) {
  Builders ours;
  const Graph copy = ours.g;
  for (const Builder& builder : ours.all()) {
    for (size_t wrong = 0; wrong < builder.operands.size(); ++wrong) {
      SCOPED_TRACE(builder.name + ", operand " + std::to_string(wrong));
      const auto ours_alone = AllOf(HasSubstr("builders_test.cc:"), Not(HasSubstr("src/")));
      Values operands = builder.operands;
      operands[wrong].graph = &copy;  // the same shape and type
      if (operands.size() > 1) {
        EXPECT_THAT(message_of(builder, operands),
                    AllOf(HasSubstr("the operands are of different graphs"), ours_alone));
      }
      operands[wrong] = {};
      EXPECT_THAT(message_of(builder, operands), AllOf(HasSubstr("no graph"), ours_alone));
    }
  }
}

TEST(EveryBuilder, IsInThisTable) {
  std::set<std::string> known;
  Builders ours;
  for (const Builder& builder : ours.all()) known.insert(builder.name);
  // A function at the start of a line that makes values.
  const std::regex declaration(
      "^(?:Value|CrossEntropy|std::vector<Value>) ([a-z_0-9]+|operator.)\\(");
  int found = 0;
  for (const char* header : {"graph.h", "builders.h", "operation.h"}) {
    std::ifstream file(std::string(CODA_SOURCE_DIR) + "/include/coda/" + header);
    ASSERT_TRUE(file) << header;
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, declaration)) continue;
      ++found;
      EXPECT_TRUE(known.contains(match[1])) << match[1] << " of coda/" << header;
    }
  }
  EXPECT_GT(found, 50);
}

TEST(EveryBuilder, AnOperatorSaysWhereItStands) {
  Graph g;
  const Value x = g.input("x", {"M", 8});
  const Value z = g.input("z", {"M", 6});
  const auto line_of = [](const std::function<void()>& build) {
    return message_of({"", {}, [&](const Values&) { build(); }}, {});
  };
  const int line = __LINE__;
  EXPECT_THAT(line_of([&] { x + z; }), HasSubstr("builders_test.cc:" + std::to_string(line + 1)));
  EXPECT_THAT(line_of([&] { x* z; }), HasSubstr("builders_test.cc:" + std::to_string(line + 2)));
  EXPECT_THAT(line_of([&] { 2 * x / z; }),
              HasSubstr("builders_test.cc:" + std::to_string(line + 3)));
}

// What no shape can be: the message says what is wrong and where.
TEST(EveryBuilder, RefusesWhatHasNoMeaning) {
  Graph g;
  const Value x = g.input("x", {"M", 8});
  const Dim twice = 2 * Dim("N");
  const Value wide = g.input("wide", {"M", twice});
  const Value i = g.table("i", {"M", 1}, DType::i32);
  const Value n = g.table("n", {"N", 1}, DType::i32);
  const Value table = g.table("table", {64, 2});
  const std::vector<std::pair<std::function<void()>, const char*>> cases = {
      {[&] { split_pair(x, 8, 2); }, "a pair has the members 0 and 1, not 2"},
      {[&] { split_pair(x, 3, 0); }, "columns are not a multiple of the group 3"},
      {[&] { split_pair(wide, 64, 0); }, "columns are not a multiple of the group 64"},
      {[&] { merge_pairs(x, x, 3); }, "16 columns are not a multiple of the group 3"},
      {[&] { merge_pairs(x, x, 0); }, "16 columns are not a multiple of the group 0"},
      {[&] { slice_columns(x, -1, 2); }, "columns [-1, 1) are not all there"},
      {[&] { slice_columns(x, 2, 0); }, "columns [2, 2) are not all there"},
      {[&] { slice_columns(wide, "N", twice); }, "accepted"},  // only sizes can tell
      {[&] { slice_columns(wide, 2, twice); }, "are not all there"},
      {[&] { slice_columns(wide, -2, "N"); }, "are not all there"},
      {[&] { concat_columns({}); }, "concat_columns(): has no operands"},
      {[&] { matmul({}); }, "matmul(): has no operands"},
      {[&] { opaque_call("embedding", {}); }, "embedding(): has no operands"},
      {[&] { select_column(x, n); }, "the index must be one value a row"},
      {[&] { gather_rows(table, x); }, "the index must be one value a row"},
      {[&] { rope(x, {table, table, n}, 2, 4); }, "the position must be one value a row"},
      {[&] { rope(x, {table, table, i}, 0, 4); }, "columns must be 0 heads of 4"},
      {[&] { g.input("none", {0, 8}); }, "input \"none\" at"},
      {[&] { g.parameter("less", {8, -1}); }, "has the size -1; sizes are positive"},
      {[&] { g.ones(0); }, "ones at"},
      {[&] { g.reciprocal_dim(0); }, "reciprocal_dim at"},
      {[&] { g.column_index(-2); }, "column_index at"},
  };
  for (const auto& [build, problem] : cases) {
    const std::string message = message_of({"", {}, [&](const Values&) { build(); }}, {});
    EXPECT_THAT(message, HasSubstr(problem));
    if (message == "accepted") continue;
    EXPECT_THAT(message, HasSubstr("builders_test.cc:"));
  }
}

}  // namespace
}  // namespace coda
