// SPDX-License-Identifier: Apache-2.0
// Which results may take the memory of an operand: of the same shape, type and pairs, read last
// where they are written.
#include "plan/after/in_place.h"

#include <gtest/gtest.h>

#include <string>

#include "coda/program.h"

namespace coda {
namespace {

// x is made by the first step, z by the last; the program between them makes y of x and inputs.
Plan plan_with(const std::string& middle) {
  Plan plan;
  const auto add = [&](const std::string& name, TensorRole role) {
    plan.tensors.push_back({TensorDecl{name, Shape{"M", 16}, DType::bf16}, role});
  };
  add("in", TensorRole::input);
  for (const TensorDecl& decl : parse_program(middle).tensors) {
    if (decl.name != "x" && decl.name != "y") plan.tensors.push_back({decl, TensorRole::input});
  }
  add("x", TensorRole::temporary);
  add("y", TensorRole::temporary);
  add("z", TensorRole::output);
  const auto copy = [](const std::string& from, const std::string& to) {
    return parse_program("program copy { store(" + to + ":bf16, tile(" + from + "[M, 16]:bf16)) }");
  };
  plan.forward = {{"first", StepRole::tile, copy("in", "x"), {}},
                  {"middle", StepRole::tile, parse_program(middle), {}},
                  {"last", StepRole::tile, copy("y", "z"), {}}};
  return plan;
}

bool is_in_place(const std::string& middle) {
  Plan plan = plan_with(middle);
  const size_t before = plan.tensors.size();
  reuse_in_place(plan, false);
  return plan.tensors.size() < before;
}

std::string of_pairs(const std::string& stored) {
  return R"(program middle {
    x = tile(x[M, 16]:bf16)
    a, b = split_pairs(x, 16)
    store(y:bf16, )" +
         stored + ")\n}";
}

TEST(InPlace, AResultOfTheSamePairsTakesItsOperandsMemory) {
  EXPECT_TRUE(is_in_place(of_pairs("merge_pairs(b, a, 16)")));
}

TEST(InPlace, AResultOfOtherPairsDoesNot) {
  EXPECT_FALSE(is_in_place(of_pairs("merge_pairs(b, a, 2)")));
  EXPECT_FALSE(is_in_place(of_pairs("merge_pairs(b, a, 8)")));
}

// Other tiles of the program read what a tile would have overwritten.
TEST(InPlace, AnOperandThatIsMultipliedTooKeepsItsMemory) {
  EXPECT_TRUE(is_in_place(R"(program middle {
    store(y:bf16, gemm(a[M, K]:bf16, b[16, K]:bf16) + tile(x[M, 16]:bf16))
  })"));
  EXPECT_FALSE(is_in_place(R"(program middle {
    store(y:bf16, gemm(x[M, 16]:bf16, b[16, 16]:bf16, nt) + tile(x[M, 16]:bf16))
  })"));
  EXPECT_FALSE(is_in_place(R"(program middle {
    store(y:bf16, gemm(a[M, M]:bf16, x[M, 16]:bf16, nn) + tile(x[M, 16]:bf16))
  })"));
}

TEST(InPlace, AnOperandThatGivesItsRowsByAnIndexKeepsItsMemory) {
  EXPECT_FALSE(is_in_place(R"(program middle {
    store(y:bf16, tile(x[M, 16]:bf16, rows=ids[M]) * 2.0)
  })"));
}

}  // namespace
}  // namespace coda
