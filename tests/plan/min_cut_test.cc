// SPDX-License-Identifier: Apache-2.0
// The minimum cut against every set of vertices, on small random graphs.
#include "plan/partition/min_cut.h"

#include <gtest/gtest.h>

#include <random>

namespace coda {
namespace {

CutProblem random_problem(std::mt19937_64& random) {
  CutProblem p;
  p.vertices = 2 + static_cast<int>(random() % 9);
  for (int v = 0; v < p.vertices; ++v) {
    const uint64_t kind = random() % 6;
    p.capacity.push_back(kind == 0   ? kNever
                         : kind == 1 ? 0
                                     : static_cast<double>(1 + random() % 5));
    for (int u = 0; u < v; ++u) {
      if (random() % 3 == 0) p.edges.emplace_back(u, v);
    }
    if (random() % 4 == 0) p.sources.push_back(v);
    if (random() % 4 == 0) p.needs.push_back(v);
  }
  return p;
}

// Whether each need can be made from the kept vertices: no way leads from a source to a need.
bool answers(const CutProblem& p, uint32_t kept) {
  uint32_t lost = 0;  // reached from a source without passing a kept vertex
  for (int v : p.sources) lost |= ~kept & (1U << v);
  for (int v = 0; v < p.vertices; ++v) {  // edges lead from smaller to larger
    for (auto [from, to] : p.edges) {
      if (to == v && (lost >> from & 1U) != 0) lost |= ~kept & (1U << to);
    }
  }
  for (int v : p.needs) {
    if ((lost >> v & 1U) != 0) return false;
  }
  return true;
}

double weight(const CutProblem& p, uint32_t kept) {
  double sum = 0;
  for (int v = 0; v < p.vertices; ++v) {
    if ((kept >> v & 1U) != 0) sum += p.capacity[static_cast<size_t>(v)];
  }
  return sum;
}

TEST(MinimumCut, AnswersAllNeedsAndNoSetIsCheaper) {
  std::mt19937_64 random(7);
  int solvable = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial));
    const CutProblem p = random_problem(random);
    double least = kNever;
    for (uint32_t kept = 0; kept < 1U << p.vertices; ++kept) {
      if (answers(p, kept)) least = std::min(least, weight(p, kept));
    }
    if (least >= kNever) continue;  // a need that is a source and may not be kept
    ++solvable;
    uint32_t cut = 0;
    for (int v : minimum_cut(p)) cut |= 1U << v;
    ASSERT_TRUE(answers(p, cut));
    ASSERT_EQ(weight(p, cut), least);
  }
  EXPECT_GT(solvable, 1000);
}

TEST(MinimumCut, OfEqualCutsTheOneNearestTheNeeds) {
  CutProblem chain;
  chain.vertices = 3;
  chain.capacity = {4, 4, 4};
  chain.edges = {{0, 1}, {1, 2}};
  chain.sources = {0};
  chain.needs = {2};
  EXPECT_EQ(minimum_cut(chain), std::vector<int>{2});
}

}  // namespace
}  // namespace coda
