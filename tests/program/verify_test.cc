// SPDX-License-Identifier: Apache-2.0
// The verifier: each rule, broken in a program that was right, is refused with a message that names
// the step and says what is wrong. Random programs with one field changed are refused, or print and
// parse without loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "coda/error.h"
#include "coda/program.h"
#include "program/random_program.h"

namespace coda {
namespace {

using ::testing::HasSubstr;

// v0 acc, v1 r, v2 z, v3 first, v4 second, v5 out, v6 store, v7 partial
Program good() {
  return parse_program(R"(program p {
    z = gemm(x[M, K], w[2*I, K]) * per_row(r)
    a, b = split_pairs(z, concatenated)
    store(out, a * b)
    row_partial(ss, sum(z))
  })");
}

steps::Gemm& gemm(Program& p) { return std::get<steps::Gemm>(p.steps[0].work); }

std::string problem_of(const Program& program) {
  try {
    verify(program);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

std::string problem_after(const std::function<void(Program&)>& change) {
  Program program = good();
  change(program);
  return problem_of(program);
}

TEST(Verify, NamesTheStepAndItsText) {
  EXPECT_EQ(problem_of(good()), "none");
  EXPECT_EQ(problem_after([](Program& p) { p.steps[2].operands = {0, 5}; }),
            "program 'p': step 2, v2 = mul(v0, v5): operand v5 is used before it is made");
}

TEST(Verify, StepsOnTheirOwn) {
  const auto expect = [](const std::function<void(Program&)>& change, const char* message) {
    EXPECT_THAT(problem_after(change), HasSubstr(message));
  };
  expect([](Program& p) { gemm(p).segments.clear(); }, "a gemm has at least one segment");
  expect([](Program& p) { gemm(p).segments[0].a = 9; }, "tensor index 9 is out of range");
  expect([](Program& p) { gemm(p).segments[0].transpose_b = false; },
         "do not agree along the contraction: K and 2*I");
  expect([](Program& p) { p.steps[0].shape.rows = "L"; }, "give [M, 2*I], not [L, 2*I]");
  expect([](Program& p) { gemm(p).segments.push_back({1, 0, false, true}); },
         "give [2*I, M], not [M, 2*I]");
  expect([](Program& p) { p.tensors[0].dtype = DType::i32; }, "gemm operand 'x' is i32");
  expect([](Program& p) { p.steps[1].work = steps::LoadPerColumn{2}; },
         "load_per_column needs [1, N]");
  expect([](Program& p) { p.steps[1].shape.rows = 3; },
         "its shape [3, 1] is not that of 'r', [M, 1]");
  expect([](Program& p) { p.steps[2].operands = {0}; }, "it takes 2 operands and has 1");
  expect([](Program& p) { p.steps[2].shape.cols = "I"; },
         "its operands broadcast to [M, 2*I], not [M, I]");
  expect([](Program& p) { p.steps[5].operands = {3, 2}; },
         "shapes [M, I] and [M, 2*I] do not broadcast");
  expect([](Program& p) { p.steps[3].work = steps::SplitPair{6, 0}; },
         "pairs within groups of 6 columns do not divide 2*I columns");
  expect([](Program& p) { p.steps[3].work = steps::SplitPair{0, 0}; },
         "pairs within groups of 0 columns");
  expect([](Program& p) { p.steps[3].work = steps::SplitPair{2 * Dim("I"), 2}; },
         "a pair has members 0 and 1, not 2");
  expect([](Program& p) { p.steps[3].shape.cols = 7; },
         "a member of its pairs has shape [M, I], not [M, 7]");
  expect([](Program& p) { p.steps[6].operands = {6}; }, "operand v6 is used before it is made");
  expect([](Program& p) { p.steps[7].operands = {6}; }, "operand v6 is an effect and has no value");
  expect([](Program& p) { p.steps[5].shape.rows = -3; }, "sizes are positive");
  expect([](Program& p) { p.steps[6].work = steps::StoreVector{p.steps[6].tensor()}; },
         "a tile is stored by store_tile");
  expect([](Program& p) { p.steps[2].work = steps::Apply{static_cast<Elementwise>(99)}; },
         "unknown operation");
}

TEST(Verify, Tensors) {
  const auto expect = [](const std::function<void(Program&)>& change, const char* message) {
    EXPECT_THAT(problem_after(change), HasSubstr(message));
  };
  expect([](Program& p) { p.tensors[1].name = "x"; }, "tensor 'x' is declared twice");
  expect([](Program& p) { p.tensors[1].name = ""; },
         "is empty or has characters that text cannot hold");
  expect([](Program& p) { p.tensors.push_back({"more", {}, DType::f32, TensorKind::dense, 1}); },
         "no step names tensor 'more'");
  expect([](Program& p) { p.tensors[3].shape.cols = "N"; },
         "'out' has shape [M, N] and the value [M, I]");
  expect([](Program& p) { p.tensors[3].dtype = DType::i32; }, "'out' is i32");
  expect([](Program& p) { p.tensors[3].kind = TensorKind::row_partial; },
         "tensor 'out' holds partials");
  expect([](Program& p) { p.tensors[4].lanes = 2; }, "a sum partial has 1 lanes, 'ss' has 2");
  expect([](Program& p) { p.tensors[4].kind = TensorKind::column_partial; },
         "'ss' is not declared as a row partial");
  expect([](Program& p) { p.tensors[4].dtype = DType::bf16; }, "partial 'ss' must be f32");
  expect([](Program& p) { p.tensors[4].shape.cols = 2 * Dim("I"); },
         "row partial 'ss' is declared for 2*I columns, its tile space has I base columns");
  expect(
      [](Program& p) {
        p.tensors[4].lanes = 2, p.steps[7].work = steps::RowPartial{4, PartialKind::mean_m2};
      },
      "a mean_m2 row partial needs a value of the base width");
}

struct Case {
  const char* body;
  const char* message;
};

TEST(Verify, StepsTogether) {
  const Case cases[] = {
      {"z = tile(z[M, 4*I])\na, b = split_pairs(z, concatenated)\nc, d = split_pairs(a, "
       "concatenated)\nstore(o, c + d)\n"
       "store(b, b)",
       "pairs of pairs"},
      {"z = tile(z[M, 4*I])\na, b = split_pairs(z, concatenated)\nc, d = split_pairs(z, "
       "interleaved)\n"
       "store(o, a * b + c * d)",
       "a tile has one pairing"},
      {"z = tile(z[M, 8*H])\nr = reduce_group(z, 8)\nstore(o, z * repeat_group(r, 4))",
       "do not broadcast"},
      {"z = tile(z[M, 8*H])\nstore(z2, z)\nstore(o, repeat_group(reduce_group(z, 8), 4))",
       "a value has the base width, or twice that through split_pairs or merge_pairs"},
      {"z = tile(z[M, 8*H])\nr = reduce_group(z, 2)\nstore(o, reduce_group(r, 2))",
       "cannot be split, merged or grouped again"},
      {"z = tile(z[M, 8*H])\nrow_partial(p, sum(reduce_group(z, 2)))", "is not reduced further"},
      {"z = tile(z[M, 8])\nr = reduce_group(z, 8)\nstore(o, z * r)", "use repeat_group"},
      {"s = gemm(x[M, K], w[H, K])\nstore(o, tile(z[M, 8*H]) * repeat_group(s, 8))",
       "a product with one column a group of its tile"},
      {"z = tile(z[M, N])\nstore(z, z * per_row(r))\nstore(o, tile(z) * 2)",
       "it may only be read before"},
      {"store(x, gemm(x[M, M], w[M, M], nt))", "cannot be read as a whole"},
      {"z = tile(z[M, N], rows=i[M])\nstore(z, z)",
       "it may only be read before, at the same place"},
      {"z = tile(z[M, 8*H])\na, b = split_pairs(z, concatenated)\n"
       "r = reduce_group(z, 2) + tile(y[M, 4*H])\nstore(o, z * repeat_group(r, 2))\n"
       "store(y, a * b)",
       "it may only be read before, at the same place"},
      {"s = select_column(tile(z[M, N]), per_row(t:i32))\nstore(o, s + 1)", "can only be stored"},
      {"s = select_column(tile(z[M, N]), per_row(t))\nstore(o, s)",
       "must be a per-row load of an i32 tensor"},
      {"v = per_row(a[M])\nstore(o, reduce_vector(v))\nstore(q, tile(z[M, N]) * v)",
       "belongs to a finalizer"},
      {"v = combine_rows(sum(p[M, N]))\nt = reduce_vector(v)\nstore(o, reduce_vector(t))",
       "which is no vector"},
      {"r = per_row(r[M])\ns = reduce_vector(r)\nstore(r, r / s)",
       "it may only be read before, at the same place"},
      {"a, b = split_pairs(per_column(v[2*I]), concatenated)\nstore(o, a + b + tile(z[M, I]))",
       "needs a tile"},
      {"store(o, as_stored(tile(z[M, N]), i32))", "values are not stored as i32"},
      {"store(o, tile(z[M, 1]))", "is a vector; load it as one"},
  };
  for (const Case& c : cases) {
    try {
      parse_program(std::string("program p {\n") + c.body + "\n}");
      ADD_FAILURE() << "no error for " << c.body;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.message)) << c.body;
    }
  }
}

TEST(Verify, WhatIsAllowed) {
  for (const char* body : {
           "store(z, tile(z[M, N]) + per_row(r))",                          // in place
           "store(dw, per_column(dw[N]) + combine_columns(sum(p[M, N])))",  // a vector in place
           "store(o, per_row(a[M]) * per_column(b[N]))",  // an outer product is a tile
           ("z = tile(z[M, 2*I])\n_, b = split_pairs(z, concatenated)\nstore(o, b)\n"
            "store(q, merge_pairs(b, b, interleaved))"),
           "store(o, scalar(a) + 1)",
       }) {
    EXPECT_NO_THROW(parse_program(std::string("program p {\n") + body + "\n}")) << body;
  }
}

TEST(Verify, ARandomChangeIsRefusedOrPrintsWithoutLoss) {
  int refused = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    std::mt19937_64 random(seed);
    Program program = tests::random_program(seed % 100).program;
    Step& step = program.steps[random() % program.steps.size()];
    TensorDecl& tensor = program.tensors[random() % program.tensors.size()];
    const int other = static_cast<int>(random() % (program.steps.size() + 2)) - 1;
    const program::StepFields fields = program::fields_of(step);
    const auto set = [](auto* field, auto value) {
      if (field != nullptr) *field = value;
    };
    switch (random() % 14) {
      case 0: step.work = program::work_of(static_cast<StepKind>(random() % 21)); break;
      case 1: step.shape.rows = Dim(static_cast<int>(random() % 5)); break;
      case 2: step.shape.cols = 2 * step.shape.cols; break;
      case 3: step.operands.push_back(other); break;
      case 4:
        if (!step.operands.empty()) step.operands[0] = other;
        break;
      case 5: set(fields.tensor, static_cast<int>(random() % 40) - 2); break;
      case 6: set(fields.row_index, static_cast<int>(random() % 40) - 2); break;
      case 7: set(fields.repeat, Dim(static_cast<int64_t>(random() % 4) - 1)); break;
      case 8: set(fields.op, static_cast<Elementwise>(random() % 29)); break;
      case 9: set(fields.group, Dim(static_cast<int>(random() % 10) - 1)); break;
      case 10: set(fields.which, static_cast<int>(random() % 4) - 1); break;
      case 11: tensor.dtype = static_cast<DType>(random() % 5); break;
      case 12: tensor.shape.cols = tensor.shape.cols + 1; break;
      default: tensor.lanes = static_cast<int>(random() % 4); break;
    }
    try {
      verify(program);
    } catch (const Error&) {
      ++refused;
      continue;
    }
    ASSERT_EQ(parse_program(text(program)), program) << "seed " << seed;
  }
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace coda
