// SPDX-License-Identifier: Apache-2.0
// Classifies by operand types and group sizes.
#include "gpu/legalise/plain_spaces.h"

#include <algorithm>
#include <bit>

#include "device/config.cuh"
#include "device/tiles/tile_position.cuh"
#include "gpu/target/element.h"
#include "program/step_table.h"

namespace coda::gpu {
namespace {

using IsOne = bool (*)(const Step&);

int count(const Program& program, const TileSpace& space, IsOne is_one) {
  return static_cast<int>(std::count_if(space.steps.begin(), space.steps.end(),
                                        [&](int i) { return is_one(program.steps[i]); }));
}

// Whether all stores of the space are of sums of groups.
bool stores_only_sums(const Program& program, const TileSpace& space) {
  return std::all_of(space.steps.begin(), space.steps.end(), [&](int i) {
    const Step& s = program.steps[i];
    return !program::is_tile_store(s) || program::sums_groups(program.steps[s.operands[0]]);
  });
}

}  // namespace

bool has_gemm(const Program& program, const TileSpace& space) {
  return count(program, space, program::is_product) != 0;
}

bool is_plain_product(const Program& program, const Step& product) {
  if (!program::is_product(product)) return false;
  const auto type = [&](int t) { return program.tensors[t].dtype; };
  const std::vector<GemmSegment>& segments = product.segments();
  // 8-bit operands may have two different types, but the same two in all segments.
  return std::any_of(segments.begin(), segments.end(), [&](const GemmSegment& s) {
    if (!is_operand(type(s.a)) || !is_operand(type(s.b))) return true;
    const bool is_tn = !s.transpose_a && s.transpose_b;
    const bool has_scales_of_rows = s.scales_b >= 0 && program.tensors[s.scales_b].shape.rows ==
                                                           program.tensors[s.b].shape.rows;
    return has_scales_of_rows || (!is_16_bits(type(s.a)) && !is_tn) ||
           !device::are_operands(element_row(type(s.a)).element, element_row(type(s.b)).element) ||
           type(s.a) != type(segments.front().a) || type(s.b) != type(segments.front().b);
  });
}

bool is_group_of_warp(int64_t base_columns) {
  return std::has_single_bit(static_cast<uint64_t>(base_columns)) &&
         base_columns <= device::kBlockColumns;
}

bool is_plain(const Program& program, const TileSpace& space, const DimValues& sizes) {
  const auto has = [&](IsOne is_one) { return count(program, space, is_one); };
  const int stores = has(program::is_tile_store);
  const int all = static_cast<int>(space.steps.size());
  if (has(program::is_product) == 1 && all == 1 + stores) {
    return std::any_of(space.steps.begin(), space.steps.end(),
                       [&](int i) { return is_plain_product(program, program.steps[i]); });
  }
  const auto is_odd_sum = [&](int i) {
    const Step& s = program.steps[i];
    return program::sums_groups(s) && !is_group_of_warp(s.group().evaluate(sizes));
  };
  if (std::none_of(space.steps.begin(), space.steps.end(), is_odd_sum)) return false;
  return has(program::is_tile_load) == 1 && has(program::sums_groups) == 1 && all == 2 + stores &&
         stores_only_sums(program, space);
}

}  // namespace coda::gpu
