// SPDX-License-Identifier: Apache-2.0
// `coda explain` of programs: lifted, with the gradients of all inputs and without, fused and
// unfused, every generated program has a plan that is shown with its costs.
// CODA_PROGRAM_SEEDS=FIRST-LAST takes other programs than the first 300 and those that have been
// refused: terms that cancel leave an input without a gradient, and what is negated comes through
// an inverse.
#include <gtest/gtest.h>

#include <string>

#include "base/seeds.h"
#include "coda/compile.h"
#include "coda/lift.h"
#include "program/random_program.h"

namespace coda {
namespace {

// "" or what went wrong.
std::string problem_of(uint64_t seed) {
  const tests::RandomProgram random = tests::random_program(seed);
  try {
    for (const bool gradients : {false, true}) {
      Graph graph;
      LiftedTensors tensors;
      lift(random.program, graph, tensors);
      reduce_partials(tensors);
      const CompileRequest request = program_request(graph, tensors, gradients);
      if (request.outputs.empty()) return "";  // partials without a gradient alone
      CompileOptions options;
      options.sizes = random.sizes;
      options.objective = seed % 2 == 0 ? Objective::memory : Objective::speed;
      options.storage = seed % 3 == 0 ? DType::bf16 : DType::f32;
      for (const bool fuse : {true, false}) {
        options.fuse = fuse;
        const Plan plan = compile(graph, request, options).plan;
        if (text(plan, options.sizes, options.rates).empty()) return "its plan has no text";
      }
    }
    return "";
  } catch (const std::exception& error) {
    return std::string(error.what()) + "\n" + text(random.program);
  }
}

TEST(GeneratedPrograms, HavePlansWithAndWithoutGradients) {
  std::vector<uint64_t> usual = tests::seeds(0, tests::fewer_if_sanitized(300) - 1);
  usual.insert(usual.end(), {2900, 7804, 8729, 10234, 14698});
  tests::expect_no_problems(tests::seeds_of("CODA_PROGRAM_SEEDS", usual), problem_of);
}

}  // namespace
}  // namespace coda
