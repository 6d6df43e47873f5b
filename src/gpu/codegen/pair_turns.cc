// SPDX-License-Identifier: Apache-2.0
#include "gpu/codegen/pair_turns.h"

#include <algorithm>

#include "gpu/codegen/function_text.h"

namespace coda::gpu {
namespace {

// One plane of all that a thread moves itself for a fragment, with its addresses and predicates,
// takes some twenty registers; of two all fragments of a sub-tile fit.
constexpr int kMostDirectPlanes = 2;

int direct_planes(const std::vector<TileMove>& moves) {
  int planes = 0;
  for (const TileMove& move : moves) {
    if (move.movement == Movement::direct) planes += move.is_wide ? 2 : 1;
  }
  return planes;
}

}  // namespace

// An error function is some forty instructions, a random number too. Without turns the first
// spilled 8 to 280 bytes in most tiles, of one product and of two, with vectors and without, the
// second 32 in a dropout's; a gelu, which is half as long, 4 beside two products and none beside
// one. Turns cost time: beside a product of K = 2048 a gelu adds 12 % to it, and added 24 % when it
// was longer and in turns. A norm of each head that also stores what it norms spilled 28 to 40
// bytes beside 128 accumulators, and none with turns. SwiGLU's gradient, three stores beside 192
// accumulators, spills 4 bytes where no first load waits.
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
