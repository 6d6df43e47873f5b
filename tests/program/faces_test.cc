// SPDX-License-Identifier: Apache-2.0
// The text and the builder are faces of one IR: programs that have every kind of step, reduction
// and type are the same from both, and every operation has its function.
// tests/python/language_test.py says it of Python, with the same texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "coda/error.h"
#include "coda/language.h"
#include "coda/lift.h"
#include "coda/program_builder.h"
#include "program/library_programs.h"
#include "program/step_table.h"

namespace coda::program {
namespace faces {
namespace {

struct Faces {
  Program built;
  std::string text;
};

// A file that is missing reads as the empty text, which is no program.
std::string text_of_face(const std::string& name) {
  std::ifstream file(CODA_SOURCE_DIR "/tests/program/faces/" + name + ".coda");
  return {std::istreambuf_iterator<char>(file), {}};
}

Faces products() {
  ProgramBuilder p("products");
  p.constants({"keep", "s"});
  const auto [gate, up] =
      p.split_pairs(p.gemm("x[M, K]:bf16", "w[2*N, K]:bf16"), Pairs::concatenated);
  const TileValue all =
      gate * p.load_per_row("r[M]") + p.load_per_column("c[N]") - up / p.load_scalar("s");
  const TileValue z = select(p.load_tile("keep[M, N]:u8"), all, 0);
  const TileValue l = p.as_stored(z, DType::bf16);
  p.store("l:bf16", l);
  p.store("l_target", p.select_column(l, p.load_per_row("target[M]:i32")));
  p.row_partial("sums", PartialKind::log_sum_exp, l);
  p.row_partial("squares", PartialKind::sum, l * l);
  p.row_partial("moments", PartialKind::mean_m2, l);
  p.row_partial("entropies", PartialKind::entropy, l);
  p.column_partial("largest", PartialKind::max, z);
  p.column_partial("magnitudes", PartialKind::abs_max, z);
  p.store_transposed("z_turned:e4m3", z);
  p.abs_max_into("z_largest", z);
  p.store("merged:e5m2", p.merge_pairs(up, gate, Pairs::concatenated));
  const TileValue sum =
      p.gemm({{"dy[K, M]:bf16", "v[K, N]:bf16", "tn"}, {"a[M, L]:bf16", "b[N, L]:bf16"}});
  p.store("h", p.load_tile("h[M, N]") + sum * p.column_index());
  return {p.build(), text_of_face("products")};
}

Faces heads() {
  ProgramBuilder p("heads");
  const TileValue z = p.load_tile("x[M, 64*H]:f16");
  const TileValue r = rsqrt(p.reduce_group(z * z, 64) / 64);
  const TileValue y = z * p.repeat_group(r, 64) * p.load_per_column("g[64]:f64", "H");
  p.store("y:f16", y * p.load_tile("table[S, 64]", {.rows = "ids[M]:i32", .repeat = "H"}));
  return {p.build(), text_of_face("heads")};
}

Faces finalizer() {
  ProgramBuilder p("finalizer");
  const TileValue lse = p.combine_rows("sums[M, N]", PartialKind::log_sum_exp, kBothResults);
  const TileValue loss = lse - p.load_per_row("l_target[M]");
  p.store("loss", loss);
  p.store("total", p.reduce_vector(loss));
  p.store("mean", p.reduce_vector(loss) / p.size("M"));
  p.store("turned", p.transpose_vector(loss));
  p.store("g_gradient", p.combine_columns("dg[M, N]", PartialKind::sum));
  return {p.build(), text_of_face("finalizer")};
}

Faces blocks() {
  ProgramBuilder p("blocks");
  const TileValue y = p.gemm("scaled(x[M, 128*B]:e4m3, x_scales[M, B])",
                             "scaled(w[128*N, 128*B]:e5m2, w_scales[N, B])");
  const TileValue s = p.abs_max_group(y, 128) / 448;
  p.store("y_scales", s);
  p.store("y:e4m3", y / p.repeat_group(s, 128));
  return {p.build(), text_of_face("blocks")};
}

std::vector<Faces> all_faces() { return {products(), heads(), finalizer(), blocks()}; }

TEST(Faces, WhatIsBuiltIsWhatTheTextSays) {
  for (const auto& [built, written] : all_faces()) {
    const Program parsed = parse_program(written);
    EXPECT_EQ(text(built), text(parsed));
    EXPECT_EQ(built, parsed);
    EXPECT_EQ(parse_program(text(built)), built);
  }
}

TEST(Faces, EveryKindOfStepReductionAndTypeIsInThem) {
  std::set<StepKind> kinds;
  std::set<PartialKind> reductions;
  std::set<DType> types;
  for (const auto& [built, written] : all_faces()) {
    for (const TensorDecl& decl : built.tensors) types.insert(decl.dtype);
    for (const Step& step : built.steps) {
      kinds.insert(step.kind());
      if (is_row_partial(step) || is_column_partial(step)) reductions.insert(step.partial());
    }
  }
  for (size_t kind = 0; kind < std::variant_size_v<StepWork>; ++kind)
    EXPECT_TRUE(kinds.contains(static_cast<StepKind>(kind)))
        << name_of(static_cast<StepKind>(kind));
  for (int kind = 0; kind < kPartialKindCount; ++kind)
    EXPECT_TRUE(reductions.contains(static_cast<PartialKind>(kind))) << kind;
  for (const DType type : kDTypes) EXPECT_TRUE(types.contains(type)) << coda::name_of(type);
}

// Of the builder, by the name that the text has.
TEST(Faces, EveryOperationIsAFunctionOfTheBuilder) {
  using O = const Operand&;
  const std::map<std::string_view, std::function<TileValue(O, O, O)>> functions = {
      {"add", [](O a, O b, O) { return a + b; }},
      {"sub", [](O a, O b, O) { return a - b; }},
      {"mul", [](O a, O b, O) { return a * b; }},
      {"div", [](O a, O b, O) { return a / b; }},
      {"neg", [](O a, O, O) { return -a; }},
      {"max", [](O a, O b, O) { return max(a, b); }},
      {"min", [](O a, O b, O) { return min(a, b); }},
      {"equal", [](O a, O b, O) { return equal(a, b); }},
      {"not_equal", [](O a, O b, O) { return not_equal(a, b); }},
      {"less", [](O a, O b, O) { return a < b; }},
      {"less_equal", [](O a, O b, O) { return a <= b; }},
      {"select", [](O a, O b, O c) { return select(a, b, c); }},
      {"exp", [](O a, O, O) { return exp(a); }},
      {"log", [](O a, O, O) { return log(a); }},
      {"rsqrt", [](O a, O, O) { return rsqrt(a); }},
      {"sqrt", [](O a, O, O) { return sqrt(a); }},
      {"recip", [](O a, O, O) { return recip(a); }},
      {"sigmoid", [](O a, O, O) { return sigmoid(a); }},
      {"tanh", [](O a, O, O) { return tanh(a); }},
      {"erf", [](O a, O, O) { return erf(a); }},
      {"silu", [](O a, O, O) { return silu(a); }},
      {"gelu", [](O a, O, O) { return gelu(a); }},
      {"gelu_tanh", [](O a, O, O) { return gelu_tanh(a); }},
      {"relu", [](O a, O, O) { return relu(a); }},
      {"abs", [](O a, O, O) { return abs(a); }},
      {"random", [](O a, O b, O c) { return random(a, b, c); }},
      {"stochastic_bf16", [](O a, O b, O) { return stochastic_bf16(a, b); }},
  };
  for (int op = 0; op < kElementwiseCount; ++op) {
    const ElementwiseInfo& row = info(static_cast<Elementwise>(op));
    const auto function = functions.find(row.name);
    ASSERT_TRUE(function != functions.end()) << row.name;
    ProgramBuilder p("one");
    std::vector<TileValue> loads;
    std::string arguments;
    for (int i = 0; i < row.arity; ++i) {
      const std::string name(1, "xyz"[i]);
      loads.push_back(p.load_tile(name + "[M, N]"));
      arguments += (i == 0 ? "tile(" : ", tile(") + name + "[M, N])";
    }
    const TileValue& last = loads.back();
    p.store("out", function->second(loads[0], loads.size() > 1 ? loads[1] : last, last));
    EXPECT_EQ(p.build(), parse_program("program one {\n  store(out, " + std::string(row.name) +
                                       "(" + arguments + "))\n}"));
  }
}

TEST(Constants, AreTablesOfTheGraphAsMasksAre) {
  const Program program = parse_program(
      "program p {\n  constants(scale)\n"
      "  store(y, where(tile(keep[M, N]:u8), tile(x[M, N]) * scalar(scale), 0))\n}");
  Graph graph;
  LiftedTensors tensors;
  lift(program, graph, tensors);
  const auto kind_of = [&](const char* name) { return graph.node(graph.find_input(name)).kind; };
  EXPECT_EQ(kind_of("scale"), InputKind::table);
  EXPECT_EQ(kind_of("keep"), InputKind::table);
  EXPECT_EQ(kind_of("x"), InputKind::activation);
  // Not of what a program before makes.
  EXPECT_THROW(lift(parse_program("program q {\n constants(y)\n store(z, tile(y[M, N]) * 2)\n}"),
                    graph, tensors),
               Error);
}

TEST(Constants, AreReadAndNamedOnce) {
  const auto message_of = [](const std::string& body) -> std::string {
    try {
      parse_program("program p {\n" + body + "\n}");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message_of("constants(x)\nstore(x, tile(x[M, N]) * 2)"),
              testing::HasSubstr("'x' is a constant, and is stored here"));
  EXPECT_THAT(message_of("constants(z)\nstore(y, tile(x[M, N]) * 2)"),
              testing::HasSubstr("no step names the constant 'z'"));
  EXPECT_THAT(message_of("constants(x, x)\nstore(y, tile(x[M, N]) * 2)"),
              testing::HasSubstr("'x' is listed twice"));
  EXPECT_THAT(message_of("store(y, gemm(x[M, K]:u8, w[N, K]:bf16))"),
              testing::HasSubstr("gemm operand 'x' is u8; products are of floats"));
}

// For who writes programs from elsewhere.
TEST(Faces, TheWordsOfTheLanguageAreThoseOfItsTables) {
  using testing::Contains;
  const Language words = language();
  EXPECT_EQ(words.operations.size(), static_cast<size_t>(kElementwiseCount));
  EXPECT_EQ(words.reductions.size(), static_cast<size_t>(kPartialKindCount));
  EXPECT_EQ(words.types.size(), std::size(kDTypes));
  EXPECT_THAT(words.functions, Contains("split_pairs"));
  EXPECT_THAT(words.functions, testing::Not(Contains("store")));
  EXPECT_THAT(words.effects, Contains("abs_max_into"));
}

}  // namespace
}  // namespace faces
}  // namespace coda::program
