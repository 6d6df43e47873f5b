// SPDX-License-Identifier: Apache-2.0
// Plans of random graphs give the same bits whether their results lie in the caller's memory, in
// the session's, which shares it with what is done with, or in memory that the caller lends; all is
// poisoned before it is written.
#include <gtest/gtest.h>

#include "coda/compile.h"
#include "coda/error.h"
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
            const std::map<std::string, std::vector<double>>& inputs, bool own_results,
            const ResultPlaces& places = {}, const Tensor& lent = {}) {
  ReferenceBackend backend;
  Session session(
      plan, backend, sizes,
      {.poison = true, .own_results = own_results, .result_places = places, .result_memory = lent});
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

bool is_in_blocks(uint64_t seed) { return seed % 4 < 2; }
RandomGraph random_graph(uint64_t seed) {
  return RandomGraph(seed, is_in_blocks(seed) ? 65 + static_cast<int64_t>(seed) : 0);
}
Plan plan_of(const RandomGraph& random, uint64_t seed) {
  CompileOptions options;
  options.sizes = random.sizes();
  options.overwrite_saved = seed % 2 == 0;
  options.loss_rows = is_in_blocks(seed) ? 64 : 0;
  return compile(random.block.graph, random.block.request, options).plan;
}

TEST(OwnResults, OfRandomGraphsHaveTheSameBitsInNoMoreMemory) {
  int loops = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomGraph random = random_graph(seed);
    const Plan plan = plan_of(random, seed);
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

// Places for all results, a gap before each.
ResultPlaces places_for(const Plan& plan, const DimValues& sizes) {
  ResultPlaces places;
  for (const PlanTensor& t : plan.tensors) {
    if (t.role != TensorRole::output || !t.view_of.empty()) continue;
    const PhysicalShape shape = physical_shape(t.decl, sizes);
    places.offsets[t.decl.name] = places.bytes += 64;
    places.bytes += (shape.rows * shape.cols * size_of(t.decl.dtype) + 63) / 64 * 64;
  }
  return places;
}

// A gradient that is added up over the blocks of a loop has a place too.
TEST(OwnResults, InMemoryThatIsLentHaveTheSameBitsAndLeaveTheGaps) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomGraph random = random_graph(seed);
    const Plan plan = plan_of(random, seed);
    const auto inputs = random.inputs();
    const ResultPlaces places = places_for(plan, random.sizes());
    Tensor lent(DType::f32, 1, places.bytes / 4);
    lent.fill(7);
    const Outcome bound = run(plan, random.sizes(), inputs, false);
    const Outcome shared = run(plan, random.sizes(), inputs, false, places, lent);
    EXPECT_EQ(shared.bound_bytes, 0);
    EXPECT_LE(shared.own_bytes, bound.own_bytes);
    for (const auto& [name, values] : bound.results) {
      EXPECT_EQ(shared.results.at(name), values) << name;
      const auto gap = static_cast<size_t>(places.offsets.at(name) / 4 - 16);
      for (size_t i = gap; i < gap + 16; ++i) ASSERT_EQ(lent.floats()[i], 7) << name;
    }
  }
}

TEST(OwnResults, MemoryOfAnotherSizeThanThePlacesSayIsRefused) {
  RandomGraph random = random_graph(1);
  const Plan plan = plan_of(random, 1);
  const ResultPlaces places = places_for(plan, random.sizes());
  EXPECT_THROW(run(plan, random.sizes(), random.inputs(), false, places,
                   Tensor(DType::f32, 1, places.bytes / 4 - 1)),
               Error);
}

}  // namespace
}  // namespace coda
