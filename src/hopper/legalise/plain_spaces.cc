// SPDX-License-Identifier: Apache-2.0
#include "hopper/legalise/plain_spaces.h"

#include <algorithm>
#include <bit>

#include "device/tiles/tile_position.cuh"
#include "hopper/arch/element.h"

namespace coda::hopper {
namespace {

int count(const Program& program, const TileSpace& space, StepKind kind) {
  return static_cast<int>(std::count_if(space.steps.begin(), space.steps.end(),
                                        [&](int i) { return program.steps[i].kind() == kind; }));
}

// All stores of the space are of the one step of that kind.
bool stores_only(const Program& program, const TileSpace& space, StepKind kind) {
  return std::all_of(space.steps.begin(), space.steps.end(), [&](int i) {
    const Step& s = program.steps[i];
    return s.kind() != StepKind::store_tile || program.steps[s.operands[0]].kind() == kind;
  });
}

}  // namespace

bool has_gemm(const Program& program, const TileSpace& space) {
  return count(program, space, StepKind::gemm) != 0;
}

bool is_plain_product(const Program& program, const Step& product) {
  if (product.kind() != StepKind::gemm) return false;
  const DType type = program.tensors[product.segments().front().a].dtype;
  if (!is_operand(type)) return true;
  return std::any_of(
      product.segments().begin(), product.segments().end(), [&](const GemmSegment& s) {
        return program.tensors[s.a].dtype != type || program.tensors[s.b].dtype != type;
      });
}

bool is_group_of_warp(int64_t base_columns) {
  return std::has_single_bit(static_cast<uint64_t>(base_columns)) &&
         base_columns <= device::kBlockColumns;
}

bool is_plain(const Program& program, const TileSpace& space, const DimValues& sizes) {
  const auto has = [&](StepKind kind) { return count(program, space, kind); };
  const int stores = has(StepKind::store_tile);
  const int all = static_cast<int>(space.steps.size());
  if (has(StepKind::gemm) == 1 && all == 1 + stores) {
    return std::any_of(space.steps.begin(), space.steps.end(),
                       [&](int i) { return is_plain_product(program, program.steps[i]); });
  }
  const auto is_odd_sum = [&](int i) {
    const Step& s = program.steps[i];
    return s.kind() == StepKind::reduce_group && !is_group_of_warp(s.group().evaluate(sizes));
  };
  if (std::none_of(space.steps.begin(), space.steps.end(), is_odd_sum)) return false;
  return has(StepKind::load_tile) == 1 && has(StepKind::reduce_group) == 1 && all == 2 + stores &&
         stores_only(program, space, StepKind::reduce_group);
}

}  // namespace coda::hopper
