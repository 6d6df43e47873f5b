// SPDX-License-Identifier: Apache-2.0
// Plans of LLaMA: the numbers of their programs, their choices, and what they save and move. The
// texts of two plans are compared with those that were read and found good.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "base/golden.h"
#include "coda/plan.h"
#include "plan/llama_cases.h"
#include "plan/search/search.h"

namespace coda {
namespace {

struct Counts {
  int gemm = 0;
  int tile = 0;
  int finalizer = 0;
  int opaque = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};

Counts count(const std::vector<PlanStep>& phase) {
  Counts counts;
  for (const PlanStep& step : phase) {
    ++(step.role == StepRole::gemm        ? counts.gemm
       : step.role == StepRole::tile      ? counts.tile
       : step.role == StepRole::finalizer ? counts.finalizer
                                          : counts.opaque);
  }
  return counts;
}

std::ostream& operator<<(std::ostream& out, const Counts& c) {
  return out << c.gemm << " GEMM, " << c.tile << " tile, " << c.finalizer << " finalizers, "
             << c.opaque << " opaque";
}

struct CompiledCase {
  Block block;
  CompileOptions options;
  Compiled compiled;
  Alternative chosen;

  explicit CompiledCase(const LlamaCase& c) {
    build(c, block, options);
    compiled = compile(block.graph, block.request, options, {.given = block.given});
    for (const Alternative& a : compiled.alternatives) {
      if (a.chosen) chosen = a;
    }
  }
};

// Each case is compiled once for all tests of a process.
const CompiledCase& compiled_case(const LlamaCase& c) {
  static std::map<std::string, std::unique_ptr<CompiledCase>> cases;
  std::unique_ptr<CompiledCase>& entry = cases[c.name];
  if (entry == nullptr) entry = std::make_unique<CompiledCase>(c);
  return *entry;
}

class LlamaPlans : public testing::TestWithParam<LlamaCase> {};

TEST(GoldenPlans, TextsAreThoseThatWereRead) {
  for (const LlamaCase& llama : llama_cases()) {
    if (llama.name != "layer_16384x4096_bf16_h200_speed" &&
        llama.name != "model_2048x576_f32_cpu_memory")
      continue;
    const CompiledCase& c = compiled_case(llama);
    expect_golden("plan/golden/" + llama.name + ".txt",
                  "choice " + c.chosen.choice + "\n" +
                      text(c.compiled.plan, c.options.sizes, c.options.rates));
  }
}

// The tables of a layer and of a model: no program beyond them and the fold's. The model's one
// finalizer more than its norms and loss need is of scalars: how many rows count. The fold of the
// first layer shares a tile program with the row statistics of the embedding.
TEST_P(LlamaPlans, NoProgramBeyondTheTables) {
  const CompiledCase& c = compiled_case(GetParam());
  const bool whole = GetParam().whole;
  EXPECT_EQ(
      count(c.compiled.plan.forward),
      (whole ? Counts{9, 1, 7, 3} : Counts{.gemm = 4, .tile = 1, .finalizer = 2, .opaque = 1}));
  EXPECT_EQ(count(c.compiled.plan.backward), (whole ? Counts{18, 3, 10, 3} : Counts{8, 1, 4, 1}));
}

// Small products at an H200's rates take as long as their bytes: what they store besides counts.
bool products_wait_for_memory(const LlamaCase& c) { return c.h200 && !c.large; }

// x ⊙ w where a product makes x, a fold where nothing does; dz' where the maker of dz stores it
// anyway (MLP, head). Of q, k, v it would have to store dv again, in a tile program: u, which an
// epilogue stores for nothing while its product computes, but which is the larger of the two where
// that product waits for memory.
TEST_P(LlamaPlans, EachNormChoosesForItself) {
  const CompiledCase& c = compiled_case(GetParam());
  std::string expected = GetParam().whole ? "Fhhhh ududd" : "Fh ud";
  if (products_wait_for_memory(GetParam())) expected = GetParam().whole ? "Fhhhh ddddd" : "Fh dd";
  if (GetParam().objective == Objective::speed) expected += GetParam().whole ? " ss" : " s";
  EXPECT_EQ(c.chosen.choice, expected);
}

// x, q, k, v, y, x1, gate and up, each row's r, and attention's log-sum-exp; with `speed` the MLP's
// activation too. Of the model two layers of that, the embedding's rows and the logits.
TEST_P(LlamaPlans, SavesWhatTheTablesName) {
  const CompiledCase& c = compiled_case(GetParam());
  const bool large = GetParam().large;
  const double rows = large ? 16384 : 2048;
  const double hidden = large ? 4096 : 576;
  const double mlp = large ? 11008 : 1536;
  const double heads = large ? 32 : 9;
  const double kv = large ? 1024 : 192;
  const double vocabulary = large ? 128256 : 49152;
  const double element = GetParam().h200 ? 2 : 4;
  const double per_layer = rows * element * (4 * hidden + 2 * kv + 2 * mlp) + rows * 4 * heads;
  const double activation = GetParam().objective == Objective::speed ? rows * element * mlp : 0;
  double expected = per_layer + activation + rows * 4 * 2;
  if (GetParam().whole) {
    // Five r; the loss's max, log of sums, and which rows count.
    const double vectors = rows * 4 * (5 + 2 + 1);
    expected = 2 * (per_layer + activation) + rows * element * (hidden + vocabulary) + vectors;
  }
  EXPECT_NEAR(c.chosen.saved_bytes, expected, 64);  // scalars
}

// Elements of matrices that programs read and write, each tensor once a program, and of all that
// calls do.
struct Moved {
  double programs = 0;
  double calls = 0;
};

Moved moved_elements(const Plan& plan, const DimValues& sizes) {
  Moved moved;
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase) {
      for (const StepTensor& t : step_tensors(step)) {
        const PlanTensor& tensor = plan.tensor(t.name);
        const double elements = static_cast<double>(tensor.decl.shape.rows.evaluate(sizes)) *
                                static_cast<double>(tensor.decl.shape.cols.evaluate(sizes)) *
                                ((t.read ? 1 : 0) + (t.written ? 1 : 0));
        if (step.role == StepRole::opaque) {
          moved.calls += elements;
        } else if (tensor.decl.kind == TensorKind::dense && tensor.decl.shape.is_tensor() &&
                   !tensor.is_table) {
          moved.programs += elements;
        }
      }
    }
  }
  return moved;
}

// The layer's tables again, tensor by tensor. Attention's own bytes are a tenth of all (25 MB of
// 419 in its adjoint alone, at 2048 x 576 in fp32): a count of the programs' bytes leaves them out.
TEST_P(LlamaPlans, MovesWhatTheTablesName) {
  if (GetParam().whole) return;
  const CompiledCase& c = compiled_case(GetParam());
  const bool large = GetParam().large;
  const double m = large ? 16384 : 2048;
  const double d = large ? 4096 : 576;
  const double i = large ? 11008 : 1536;
  const double kv = large ? 1024 : 192;
  const double heads = large ? 32 : 9;
  const double qkv_weights = d * (d + 2 * kv);
  const double qkv = m * (d + 2 * kv);
  const double again = GetParam().objective == Objective::memory ? m * i : 0;
  const bool stores_dv = products_wait_for_memory(GetParam());
  const double dv_again = stores_dv ? m * kv : 0;
  const double u = stores_dv ? 0 : m * d;
  const std::vector<double> programs{
      2 * qkv_weights,                    // the fold
      m * d + qkv_weights + qkv,          // q, k, v
      4 * m * d + d * d,                  // y, x -> x1, h1
      m * d + 2 * d * i + 3 * m * i,      // h1 -> gate, up, a
      m * i + d * i + 2 * m * d,          // a, x1 -> x2
      m * d + d * i + 4 * m * i + again,  // d_x2, gate, up -> dz', a
      m * d + m * i + d * i,              // d_down
      2 * m * i + 2 * d * i + 3 * m * d,  // dz', x1, d_x2 -> d_x1
      2 * m * i + m * d + 2 * d * i,      // d_gate, d_up
      2 * (2 * m * d + d * d),            // d_y; d_o
      2 * qkv + m * (d + kv) + dv_again,  // rotations back, row products
      qkv + qkv_weights + 3 * m * d + u,  // d_x, normalised x
      qkv + m * d + 2 * qkv_weights,      // d_q, d_k, d_v; their columns with W
  };
  double expected = 0;
  for (const double elements : programs) expected += elements;
  const Moved moved = moved_elements(c.compiled.plan, c.options.sizes);
  EXPECT_EQ(moved.programs, expected);
  EXPECT_EQ(moved.calls, (qkv + m * d + m * heads) + (qkv + 2 * m * d + m * heads + qkv));
}

INSTANTIATE_TEST_SUITE_P(All, LlamaPlans, testing::ValuesIn(llama_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace coda
