// SPDX-License-Identifier: Apache-2.0
// Plans of random graphs give the same bits whether their results lie in the caller's memory or in
// the session's, which shares it with what is done with, poisoned before it is written.
#include <gtest/gtest.h>

#include "coda/compile.h"
#include "coda/session.h"
#include "plan/random_graphs.h"
#include "runtime/owned_tensor.h"
#include "runtime/reference_backend.h"

namespace coda {
namespace {

struct Outcome {
  std::map<std::string, std::vector<double>> results;
  int64_t own_bytes = 0;
  int64_t bound_bytes = 0;  // of results
};

Outcome run(const Plan& plan, const DimValues& sizes,
            const std::map<std::string, std::vector<double>>& inputs, bool own_results) {
  ReferenceBackend backend;
  Session session(plan, backend, sizes,
                  {.timing = false, .poison = true, .own_results = own_results});
  Outcome run;
  std::map<std::string, OwnedTensor> tensors;
  for (const PlanTensor& t : plan.tensors) {
    if (!t.view_of.empty() || session.owns(t.decl.name)) continue;
    const PhysicalShape shape = physical_shape(t.decl, sizes);
    OwnedTensor& tensor =
        tensors.try_emplace(t.decl.name, t.decl.dtype, shape.rows, shape.cols).first->second;
    if (t.role == TensorRole::output) {
      run.bound_bytes += shape.rows * shape.cols * size_of(t.decl.dtype);
    } else {
      tensor.set(inputs.at(t.decl.name));
    }
    session.bind(t.decl.name, tensor.view());
  }
  session.forward();
  session.backward();
  for (const PlanTensor& t : plan.tensors) {
    if (t.role == TensorRole::output)
      run.results[t.decl.name] = read_values(session.view(t.decl.name));
  }
  run.own_bytes = session.arena_bytes() + session.saved_bytes();
  return run;
}

TEST(OwnResults, OfRandomGraphsHaveTheSameBitsInNoMoreMemory) {
  int loops = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const bool in_blocks = seed % 4 < 2;
    RandomGraph random(seed, in_blocks ? 65 + static_cast<int64_t>(seed) : 0);
    CompileOptions options;
    options.sizes = random.sizes();
    options.overwrite_saved = seed % 2 == 0;
    options.chunk_rows = in_blocks ? 64 : 0;
    const Plan plan = compile(random.block.graph, random.block.request, options).plan;
    loops += static_cast<int>(plan.loops.size());
    const auto inputs = random.inputs();
    const Outcome bound = run(plan, random.sizes(), inputs, false);
    const Outcome own = run(plan, random.sizes(), inputs, true);
    ASSERT_FALSE(own.results.empty());
    EXPECT_EQ(own.bound_bytes, 0);
    for (const auto& [name, values] : bound.results)
      EXPECT_EQ(own.results.at(name), values) << name;
    const auto lines = 64 * static_cast<int64_t>(bound.results.size());  // the caller's are packed
    EXPECT_LE(own.own_bytes, bound.own_bytes + bound.bound_bytes + lines);
  }
  EXPECT_GT(loops, 5);
}

}  // namespace
}  // namespace coda
