// SPDX-License-Identifier: Apache-2.0
// Decides from the analysis and the configuration which pairs take turns. The limits are measured.
#include "gpu/codegen/pair_turns.h"

#include <algorithm>

#include "gpu/codegen/function_text.h"

namespace coda::gpu {
namespace {

// A plane that threads move directly takes about twenty registers per fragment, with addresses and
// predicates. With two planes all fragments of a sub-tile fit.
constexpr int kMostDirectPlanes = 2;

int direct_planes(const std::vector<TileMove>& moves) {
  int planes = 0;
  for (const TileMove& move : moves) {
    if (move.movement == Movement::direct) planes += move.is_wide ? 2 : 1;
  }
  return planes;
}

}  // namespace

// Measurements behind the rules. An error function takes about forty instructions, and so does a
// random number. Without turns, error functions spilled 8 to 280 bytes in most tiles, and random
// numbers 32 bytes in a dropout. A gelu, half as long, spilled 4 bytes with two GEMMs and none with
// one. A norm per head that also stores its input spilled 28 to 40 bytes with 128 accumulators, and
// none with turns. SwiGLU's gradient (three stores, 192 accumulators) spills 4 bytes if no first
// load waits. Turns cost time: with K = 2048 a gelu adds 12 % to its GEMM; with turns and a longer
// gelu it was 24 %.
PairTurns::PairTurns(const SpaceAnalysis& space, const device::GemmConfig& config)
    : all_(direct_planes(space.loads) + direct_planes(space.stores) > kMostDirectPlanes ||
           space.has_long_function || space.groups.span != 0),
      first_load_for_(!all_ && device::takes_turns(config, space.traits()) ? space.traits().stores
                                                                           : 0) {}

std::string PairTurns::begin_with(const std::string& value) const {
  return all_ ? filled("after_turn($, sub.turn, at)", {value}) : value;
}

std::string PairTurns::begin_with_load(const std::string& bits) {
  if (first_load_for_ == 0) return begin_with(bits);
  const std::string last = std::to_string(first_load_for_ - 1);
  first_load_for_ = 0;
  return filled(
      "after_turn($, kBlock == 0 && kFragment < 2 && pair != 0 ? stored[$][pair - 1] : 0, at)",
      {bits, last});
}

void PairTurns::end_with(const std::string& value) {
  if (std::find(made_.begin(), made_.end(), value) == made_.end()) made_.push_back(value);
}

std::string PairTurns::fragment_line() const {
  return all_ ? "    const FragmentPosition at = after_turn(start, sub.turn);\n" : "";
}

std::string PairTurns::field_line() const { return all_ ? "    u32 turn = 0;\n" : ""; }

std::string PairTurns::last_line() const {
  if (!all_ || made_.empty()) return "";
  std::string bits;
  for (const std::string& value : made_)
    bits += (bits.empty() ? "" : " | ") + ("bits_of(" + value + ")");
  return "      sub.turn = " + bits + ";\n";
}

}  // namespace coda::gpu
