// SPDX-License-Identifier: Apache-2.0
// Graphs as people write them: what a text means beside the same calls of builders, how it is laid
// out and printed, and what is said of mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/builders.h"
#include "coda/error.h"
#include "coda/operation.h"
#include "coda/program.h"
#include "coda/program_error.h"
#include "graph_text/same_graph.h"

namespace coda {
namespace {

using testing::HasSubstr;

constexpr const char* kBlock = R"(# A norm, attention and a gated MLP.
graph block {
  x = input(x[M, 8]:bf16)
  rstd = rsqrt(reduce_rows(sum(x * x)) * reciprocal_dim(8) + 1e-6)
  h = x * rstd * parameter(norm[1, 8])
  q = gemm(h, parameter(wq[8, 8]:bf16), nt)
  k = gemm(h, parameter(wk[8, 8]:bf16), nt)
  v = gemm(h, parameter(wv[8, 8]:bf16), nt)
  o, _ = attention(q, k, v, heads=2, kv_heads=2, head_dim=4, scale=0.5, causal=1, sequence=T)
  gate, up = split_pairs(gemm(o, parameter(gate_up[2*I, 8]:bf16)), concatenated)
  y = x + gemm(silu(gate) * up, parameter(down[8, I]:bf16))
  store(y:bf16, y)
  store(loss, reduce_rows(log_sum_exp(y)) - select_column(y, table(target[M, 1]:i32)))
}
)";

TEST(WrittenGraph, IsWhatTheSameBuildersMake) {
  Graph g;
  const Value x = g.input("x", {"M", 8}, DType::bf16);
  const Value h = rms_norm(x, g.parameter("norm", {1, 8}), 1e-6);
  const Value q = linear(h, g.parameter("wq", {8, 8}, DType::bf16));
  const Value k = linear(h, g.parameter("wk", {8, 8}, DType::bf16));
  const Value v = linear(h, g.parameter("wv", {8, 8}, DType::bf16));
  const Value o = attention(
      q, k, v, {.heads = 2, .kv_heads = 2, .head_dim = 4, .sequence = "T", .causal = true});
  const Value both = linear(o, g.parameter("gate_up", {2 * Dim("I"), 8}, DType::bf16));
  const Value gated =
      swiglu(split_pair(both, both.shape().cols, 0), split_pair(both, both.shape().cols, 1));
  const Value y = x + linear(gated, g.parameter("down", {8, "I"}, DType::bf16));
  const Value target = g.table("target", {"M", 1}, DType::i32);
  const std::vector<NamedValue> outputs = {{"y", y, DType::bf16},
                                           {"loss", row_logsumexp(y) - select_column(y, target)}};
  const NamedGraph parsed = parse_graph(kBlock);
  EXPECT_EQ(parsed.name, "block");
  tests::expect_same(g, outputs, parsed.graph, parsed.outputs, false);
}

TEST(WrittenGraph, IsPrintedInOneForm) {
  const std::string printed = text(parse_graph(kBlock));
  EXPECT_EQ(printed, R"(graph block {
  x = input(x[M, 8]:bf16)
  v = x * rsqrt(reduce_rows(sum(x * x)) * 0.125 + 1e-06) * parameter(norm[1, 8])
  attention, _ = attention(gemm(v, parameter(wq[8, 8]:bf16), nt),
      gemm(v, parameter(wk[8, 8]:bf16), nt), gemm(v, parameter(wv[8, 8]:bf16), nt), causal=1,
      head_dim=4, heads=2, kv_heads=2, scale=0.5, sequence=T)
  acc = gemm(attention, parameter(gate_up[2*I, 8]:bf16))
  first, second = split_pairs(acc, concatenated)
  y = x + gemm(second * (first * sigmoid(first)), parameter(down[8, I]:bf16))
  loss = reduce_rows(log_sum_exp(y)) - select_column(y, table(target[M, 1]:i32))
  store(y:bf16, y)
  store(loss, loss)
}
)");
  EXPECT_EQ(text(parse_graph(printed)), printed);
}

TEST(WrittenGraph, IsLaidOutWithItsComments) {
  EXPECT_EQ(format_graph("graph  g{ # what it is\n x=input( x [M,2 * N ]:bf16 )\n# halves\n"
                         "a,b=split_pairs( x,concatenated)\n\n\n"
                         "store( y,slice_columns(a*-b,0,1*N)+ones( N )) }"),
            "graph g {  # what it is\n"
            "  x = input(x[M, 2*N]:bf16)\n"
            "  # halves\n"
            "  a, b = split_pairs(x, concatenated)\n"
            "\n"
            "  store(y, slice_columns(a * -b, 0, 1*N) + ones(N))\n"
            "}\n");
  EXPECT_EQ(format_graph(kBlock), kBlock);
}

// Options stand on lines of their own where a call is long, and still are no statements.
TEST(WrittenGraph, TakesOptionsOnLinesOfTheirOwn) {
  const char* broken =
      "graph g {\n  q = input(q[M, 8])\n  o, lse = attention(q, q, q, heads=2, kv_heads=2,\n"
      "      head_dim=4,\n      scale=-0.5,\n      causal=1, sequence=2*T\n  )\n"
      "  store(o, o)\n  store(lse, lse)\n}\n";
  EXPECT_EQ(parse_graph(broken).outputs.size(), 2U);
}

TEST(WrittenGraph, IsToldFromAProgram) {
  EXPECT_TRUE(is_graph_text("graph g {"));
  EXPECT_TRUE(is_graph_text("  # a comment\n\n# graph\r\ngraph\"g\" {"));
  EXPECT_FALSE(is_graph_text("program graph {"));
  EXPECT_FALSE(is_graph_text("graphs g {"));
  EXPECT_FALSE(is_graph_text("# graph"));
}

// The mistakes of a text: line, column and message of each.
std::vector<Diagnostic> mistakes_of(const std::string& text) {
  try {
    parse_graph(text);
  } catch (const ProgramError& error) {
    return error.mistakes();
  }
  return {};
}

// What is said of a statement in a graph that is right but for it.
std::string said_of(const std::string& statement) {
  const std::vector<Diagnostic> mistakes = mistakes_of(
      "graph g {\n  x = input(x[M, N])\n  w = parameter(w[N, N])\n  store(x, x)\n  store(w, w)\n" +
      statement + "\n}\n");
  EXPECT_EQ(mistakes.size(), 1U) << statement;
  if (mistakes.empty()) return "nothing";
  EXPECT_EQ(mistakes[0].line, 6) << statement;
  return mistakes[0].message;
}

TEST(WrittenGraph, EachMistakeSaysWhatToDo) {
  const std::pair<const char*, const char*> all[] = {
      {"y = xx + 1", "'xx' has no value yet; did you mean 'x'?"},
      {"y = q + 1", "an input is declared first:  q = input(q[M, N]), or parameter, or table"},
      {"y = input(x[M, N])", "input 'x' is declared already"},
      {"y = input(r[M])", "[M, 1] is a value for each row"},
      {"y = tile(x)", "a graph reads no tensors: an input is declared"},
      {"y = gemn(x, w)", "there is no function 'gemn'; did you mean 'gemm'?"},
      {"y = attentoin(x, x, x)", "the nearest known name is \"attention\""},
      {"y = gemm(x, w)", "share more than one size; add the layout"},
      {"y = gemm(w, input(z[K, L]), nn)", "contracts N with K"},
      {"y = gemm(x, input(z[K, L]))", "share no size to contract"},
      {"y = gemm(x, w, nx)", "the layout of a gemm is nn, nt, tn or tt"},
      {"row_partial(p, sum(x))", "a graph has no partials: y = reduce_rows(sum(x))"},
      {"y = combine_rows(sum(p[M, N]))", "reduce_rows(sum(x)), or reduce_columns"},
      {"y = as_stored(x, bf16)", "is a word of programs and has no counterpart in a graph"},
      {"y = reduce_rows(summ(x))", "did you mean 'sum'?"},
      {"y = store(z, x)", "'store' has no value"},
      {"store(x, w)", "output 'x' is stored already"},
      {"store(z[M, M], x)", "output 'z' has the shape of its value, [M, N]"},
      {"stroe(z, x)", "did you mean 'store'?"},
      {"y = x + w", "shapes do not broadcast"},
      {"y = split_pairs(x, interleaved)", "write  a, b = split_pairs(...)"},
      {"a, b, c = split_pairs(w, interleaved)", "gives 2 values, and 3 names stand here"},
      {"a, b = gemm(x, w, nn)", "gives 1 value, and 2 names stand here"},
      {"a, a = split_pairs(input(z[M, 8]), interleaved)", "two values need two names"},
      {"a, b = split_pairs(input(z[M, 7]), interleaved)", "an odd number of columns has no pairs"},
      {"a, b = silu(x)", "'silu' gives one value and is no operation"},
      {"y = marked_rows(input(z[M, 2]), rows=5)", "'marked_rows' gives 2 values: write  a, b = "},
      {"y = top_k_mask(x, kk=2)", "'top_k_mask' has k; did you mean 'k'?"},
      {"y = top_k_mask(x, k=2, k=3)", "'k' is given twice"},
      {"y = top_k_mask(x)", "attribute \"k\" is missing"},
      {"y = top_k_mask(x, k=x)", "expected a number, there is 'x'"},
      {"y = top_k_mask(x, x, k=1)", "takes 1 operands, not 2"},
      {"gemm = x + 1", "'gemm' cannot name a value"},
      {"x = x + 1", "'x' has a value already"},
      {"y = x + 1", "'y' is not used; store it (store(y, y)) or leave it out"},
      {"y = slice_columns(x, 0)", "expected ',', there is ')'"},
      {"y = again(x)", "expected '(', there is ')'"},
      {"y = again(silu(x))", "'silu' gives one value and is no operation"},
      {"y = x + 1 2", "expected the end of the line, there is '2'"},
  };
  for (const auto& [statement, message] : all) {
    EXPECT_THAT(said_of(statement), HasSubstr(message)) << statement;
  }
}

TEST(WrittenGraph, AllMistakesAreToldAtOnce) {
  const std::vector<Diagnostic> mistakes = mistakes_of(
      "graph g {\n  x = inptu(x[M, N])\n  y = x * 2\n  z = silu(1, 2)\n  store(y, 3 +)\n}");
  ASSERT_EQ(mistakes.size(), 3U);
  EXPECT_EQ(mistakes[0].line, 2);
  EXPECT_EQ(mistakes[0].column, 7);
  EXPECT_EQ(mistakes[1].line, 4);
  EXPECT_EQ(mistakes[2].line, 5);
  EXPECT_EQ(mistakes_of("graph g {\n}\n")[0].message,
            "the graph stores nothing; add  store(NAME, value)");
}

TEST(WrittenGraph, GraphsAndProgramsAreToldApart) {
  try {
    parse_program("# mine\ngraph g {\n}\n", "g.coda");
    FAIL();
  } catch (const ProgramError& error) {
    EXPECT_THAT(error.what(), HasSubstr("g.coda:2:1: error: this is a graph, and a program is "
                                        "needed here"));
    EXPECT_EQ(error.mistakes().size(), 1U);
  }
  EXPECT_THAT(mistakes_of("program p {\n}\n")[0].message,
              HasSubstr("this is a program, and a graph is needed here"));
}

// An operation may have the name of a word: then it is called in quotes.
TEST(WrittenGraph, CallsOperationsOfAnyName) {
  Operation same;
  same.name = "ones";
  same.operands = {"x"};
  same.results = [](const OperationSettings&, const std::vector<Shape>& in) {
    return std::vector<OperationResult>{{in[0]}};
  };
  same.evaluate = [](const OperationSettings&, const std::vector<Matrix>& in,
                     std::vector<Matrix>& out) { out[0].data = in[0].data; };
  register_operation(std::move(same));
  Graph g;
  const std::vector<NamedValue> outputs = {{"y", opaque_call("ones", {g.input("x", {"M", 4})})[0]}};
  EXPECT_THAT(text(g, outputs), HasSubstr("y = \"ones\"(input(x[M, 4]))"));
  tests::expect_round_trip(g, outputs);
}

}  // namespace
}  // namespace coda
