// SPDX-License-Identifier: Apache-2.0
#include "measure/burst_shape.h"

#include <algorithm>
#include <cmath>

namespace coda::measure {
namespace {

constexpr double kMostCalls = 20000;
constexpr double kShortestMs = 1e-6;
// Of a graph: beside it, launching the next one takes nothing.
constexpr double kGraphMs = 1;

}  // namespace

BurstShape burst_shape(double ms, double call_ms, unsigned sets) {
  const double each = std::max(call_ms, kShortestMs);
  const int calls = static_cast<int>(std::lround(std::clamp(ms / each, 1.0, kMostCalls)));
  const int round = static_cast<int>(sets);
  // A round through all sets would be longer than the burst.
  if (round == 0 || calls < round) return {.calls = calls};
  const double rounds = std::min(kGraphMs, ms) / (each * round);
  const int captured = round * static_cast<int>(std::clamp(rounds, 1.0, 1.0 * calls / round));
  const int replays = std::max(1, (calls + captured / 2) / captured);
  return {.calls = replays * captured, .captured = captured};
}

}  // namespace coda::measure
