// SPDX-License-Identifier: Apache-2.0
// Which results may take the memory of an operand: of the same shape, type and pairs, read last
// where they are written.
#include "plan/in_place.h"

#include <gtest/gtest.h>

#include <string>

#include "coda/program.h"

namespace coda {
namespace {

// x is made by the first step, z by the last; the program between them makes y of x.
Plan plan_with(const std::string& store) {
  Plan plan;
  const auto add = [&](const std::string& name, TensorRole role) {
    plan.tensors.push_back({TensorDecl{name, Shape{"M", 16}, DType::bf16}, role});
  };
  add("in", TensorRole::input);
  add("x", TensorRole::temporary);
  add("y", TensorRole::temporary);
  add("z", TensorRole::output);
  const auto copy = [](const std::string& from, const std::string& to) {
    return parse_program("program copy { store(" + to + ":bf16, tile(" + from + "[M, 16]:bf16)) }");
  };
  plan.forward = {{"first", StepRole::tile, copy("in", "x"), {}},
                  {"middle",
                   StepRole::tile,
                   parse_program("program middle {\n"
                                 "  x = tile(x[M, 16]:bf16)\n"
                                 "  a, b = split_pairs(x, 16)\n"
                                 "  store(y:bf16, " +
                                 store +
                                 ")\n"
                                 "}"),
                   {}},
                  {"last", StepRole::tile, copy("y", "z"), {}}};
  return plan;
}

size_t tensors_in_place(const std::string& store) {
  Plan plan = plan_with(store);
  reuse_in_place(plan, false);
  return plan.tensors.size();
}

TEST(InPlace, AResultOfTheSamePairsTakesItsOperandsMemory) {
  EXPECT_EQ(tensors_in_place("merge_pairs(b, a, 16)"), 3);
}

TEST(InPlace, AResultOfOtherPairsDoesNot) {
  EXPECT_EQ(tensors_in_place("merge_pairs(b, a, 2)"), 4);
  EXPECT_EQ(tensors_in_place("merge_pairs(b, a, 8)"), 4);
}

}  // namespace
}  // namespace coda
