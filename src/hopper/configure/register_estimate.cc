// SPDX-License-Identifier: Apache-2.0
#include "hopper/configure/register_estimate.h"

#include <algorithm>

#include "device/layout/fragment.cuh"

namespace coda::hopper {

using device::GemmConfig;
using device::Schedule;

uint32_t registers_of(const ProgramSizes& sizes, const SpaceAnalysis& space,
                      const GemmConfig& config) {
  const device::EpilogueTraits shape = space.traits();
  const uint32_t fragment = device::takes_turns(config, shape)
                                ? 16 + 4 * shape.planes()
                                : 24 + 4 * (shape.loads + shape.stores);
  uint32_t registers = config.accumulators() + fragment + 2 * config.blocks_m() * space.row_values +
                       space.column_registers + space.direct_registers + 10 * space.column_fields +
                       space.groups.registers;
  for (int i : space.row_partials) {
    registers += 2 * static_cast<uint32_t>(info(sizes.step(i).partial()).lanes);
  }
  return registers;
}

uint32_t registers_beside_192(const ProgramSizes& sizes, const SpaceAnalysis& space,
                              const GemmConfig& config) {
  const device::EpilogueTraits shape = space.traits();
  const bool is_cooperative = config.schedule == Schedule::cooperative;
  const bool is_strided = config.major_a() == device::Major::outer;
  uint32_t registers = config.accumulators() + 2 * config.blocks_m() * space.row_values +
                       space.column_registers + space.direct_registers + space.groups.registers;
  if (space.loads_columns_by_fragment) registers += 8;
  if (device::takes_turns(config, shape)) {
    registers += 4 * shape.planes() + 4;
  } else {
    const uint32_t fewest = space.column_fields == 0 ? 0 : 3;
    registers += 4 * std::max(fewest, shape.loads + shape.stores);
    if (is_cooperative && shape.loads > 1 && shape.stores > 1) registers += 16;
  }
  registers += 18 * static_cast<uint32_t>(space.parts.size() - 1);
  registers += 15 * space.column_fields + 8 * static_cast<uint32_t>(space.selections.size());
  for (int i : space.row_partials) {
    const PartialKind kind = sizes.step(i).partial();
    const auto lanes = static_cast<uint32_t>(info(kind).lanes);
    registers += kind == PartialKind::log_sum_exp ? 16 : 2 * lanes;
  }
  for (const TileMove& store : space.stores) {
    const uint32_t planes = store.is_wide ? 2 : 1;
    if (store.movement == Movement::added) registers += 20 * planes;
    if (store.movement == Movement::direct) registers += (is_strided ? 26 : 4) * planes;
  }
  // Addresses: of a third block of rows, of a strided operand, of stages whose number is no power
  // of two.
  if (config.blocks_m() > 2) registers += 4;
  if (is_strided) registers += 3;
  if (is_cooperative || config.stages > 4) registers += 2;
  return registers;
}

bool keeps_tables(const ProgramSizes& sizes, const SpaceAnalysis& space, const GemmConfig& config) {
  if (space.repeated_planes == 0 || !space.loads_ahead) return false;
  // A ping-pong tile's epilogue is hidden; and beside five stages such kernels spilled.
  if (config.schedule == Schedule::ping_pong) return false;
  // With several blocks of rows there are as many tables.
  if (config.blocks_m() != 1 || device::sub_tile_columns(config, space.traits()) == 1) return false;
  // Four fragments of eight values instead of two, less addresses that are gone by then: what
  // spilled (two scales of rows beside RoPE's two tables) is not admitted.
  constexpr uint32_t kMore = 15;
  return registers_of(sizes, space, config) + kMore * space.repeated_planes <=
         sizes.options().architecture.registers;
}

}  // namespace coda::hopper
