// SPDX-License-Identifier: Apache-2.0
// What becomes of the sums of programs with products: which are put in another order or factored,
// which are left as they are, and that the values are the same in float64.
#include "gpu/codegen/reassociate_fma.h"

#include <gtest/gtest.h>

#include <cmath>

#include "program/evaluate.h"
#include "program/random_program.h"
#include "program/tile_map.h"

namespace coda::gpu {
namespace {

std::string rewritten(const std::string& program_text) {
  return text(reassociate_fma(parse_program(program_text)));
}

void expect_unchanged(const std::string& program_text) {
  const Program program = parse_program(program_text);
  EXPECT_EQ(reassociate_fma(program), program);
}

// As a plan writes it: sigmoid's derivative, with what the two terms have in common. The gradient
// of up is made anyway.
TEST(ReassociateFma, SwigluDerivativeIsFactored) {
  EXPECT_EQ(rewritten(R"(program swiglu_backward {
    up = tile(up[M, N]:bf16)
    gate = tile(gate[M, N]:bf16)
    sig = sigmoid(gate)
    act = gate * sig
    store(a:bf16, up * act)
    acc = gemm(dy[M, K]:bf16, w[K, N]:bf16)
    dup = act * acc
    store(d_up:bf16, dup)
    through = up * acc
    store(d_gate:bf16, sig * through + sig * (1 - sig) * (gate * through))
  })"),
            R"(program swiglu_backward {
  up = tile(up[M, N]:bf16)
  gate = tile(gate[M, N]:bf16)
  v = sigmoid(gate)
  v_2 = gate * v
  store(a:bf16, up * v_2)
  acc = gemm(dy[M, K]:bf16, w[K, N]:bf16)
  d_up = v_2 * acc
  store(d_up:bf16, d_up)
  v_3 = 1 - v
  store(d_gate:bf16, (v * acc + d_up * v_3) * up)
}
)");
}

TEST(ReassociateFma, ProductsComeLastInASumThatIsStoredTo16Bits) {
  EXPECT_EQ(rewritten(R"(program norm_backward {
    acc = gemm(dz[M, K]:bf16, w[K, N]:bf16)
    x = tile(x[M, N]:bf16)
    v = acc * per_column(norm[N]:bf16) + x * per_row(s[M])
    store(dx:bf16, tile(dx[M, N]:bf16) + v)
    column_partial(d_norm, sum(x * acc))
  })"),
            R"(program norm_backward {
  acc = gemm(dz[M, K]:bf16, w[K, N]:bf16)
  x = tile(x[M, N]:bf16)
  v = acc * per_column(norm[N]:bf16)
  v_2 = x * per_row(s[M])
  store(dx, tile(dx[M, N]:bf16) + v + v_2)
  column_partial(d_norm, sum(x * acc))
}
)");
}

// The accumulators' registers are free when x is multiplied.
TEST(ReassociateFma, ProductsOfAccumulatorsComeBeforeOthers) {
  EXPECT_EQ(rewritten(R"(program data_gradient {
    x = tile(x[M, N]:bf16)
    acc = gemm(dz[M, K]:bf16, w[K, N]:bf16)
    store(dx:bf16, tile(dx[M, N]:bf16) + (x * per_row(s[M]) + acc * per_column(norm[N])))
  })"),
            R"(program data_gradient {
  x = tile(x[M, N]:bf16)
  acc = gemm(dz[M, K]:bf16, w[K, N]:bf16)
  dx = tile(dx[M, N]:bf16)
  v = x * per_row(s[M])
  store(dx, dx + acc * per_column(norm[N]) + v)
}
)");
}

// Where single precision is what is stored, or what others read, the order of a sum is the
// caller's.
TEST(ReassociateFma, OtherSumsKeepTheirOrder) {
  expect_unchanged(R"(program to_fp32 {
    acc = gemm(a[M, K]:bf16, b[K, N]:bf16)
    x = tile(x[M, N])
    store(y, acc * per_column(c[N]) + x * per_row(s[M]) + x)
  })");
  expect_unchanged(R"(program read_by_a_reduction {
    acc = gemm(a[M, K]:bf16, b[K, N]:bf16)
    x = tile(x[M, N]:bf16)
    y = acc * per_column(c[N]) + x * per_row(s[M]) + tile(z[M, N]:bf16)
    store(y:bf16, y)
    row_partial(squares, sum(y * y))
  })");
  expect_unchanged(R"(program one_product {
    store(y:bf16, gemm(a[M, K]:bf16, b[K, N]:bf16) * per_column(c[N]) + tile(x[M, N]:bf16) + 1)
  })");
}

// Nothing is gained where the products are needed themselves.
TEST(ReassociateFma, WhatIsMadeAnywayIsNotFactored) {
  expect_unchanged(R"(program both_stored {
    acc = gemm(a[M, K]:bf16, b[K, N]:bf16)
    x = acc * tile(x[M, N]:bf16)
    y = acc * tile(y[M, N]:bf16)
    store(p:bf16, x)
    store(q:bf16, y)
    store(r:bf16, x + y)
  })");
}

// Kernels without a product wait for memory.
TEST(ReassociateFma, ProgramsWithoutAProductAreLeft) {
  expect_unchanged(R"(program tiles {
    a = tile(a[M, N]:bf16)
    b = tile(b[M, N]:bf16)
    c = tile(c[M, N]:bf16)
    store(d:bf16, a * b + a * c)
  })");
}

TEST(ReassociateFma, RandomProgramsAreTheSameInFloat64) {
  int changed = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    const Program program = reassociate_fma(random.program);
    changed += program == random.program ? 0 : 1;
    verify(program);
    const auto inputs = tests::random_inputs(random.program, random.sizes, seed);
    const auto expected = program::evaluate(random.program, random.sizes, inputs);
    const auto made = program::evaluate(program, random.sizes, inputs);
    for (const auto& [name, values] : expected) {
      const std::vector<double>& own = made.at(name);
      ASSERT_EQ(own.size(), values.size()) << name;
      double size = 1;
      for (double value : values) size = std::max(size, std::abs(value));
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_LE(std::abs(own[i] - values[i]), 1e-12 * size) << name << "\n" << text(program);
    }
  }
  EXPECT_GE(changed, 10);
}

}  // namespace
}  // namespace coda::gpu
