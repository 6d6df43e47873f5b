// SPDX-License-Identifier: Apache-2.0
// The target's rates (KernelRates) give the cost of each part.
#include "gpu/configure/config_model.h"

#include <algorithm>

#include "base/rounding.h"
#include "device/layout/tile_order.cuh"

namespace coda::gpu {
namespace {

using device::GemmConfig;
using device::Schedule;

struct Epilogue {
  double sub_tiles;
  double extra;       // planes after the first
  double operations;  // operations beyond those that cost nothing
};

double mainloop_cycles(const Target& target, const GemmConfig& c, const TileKind& kind,
                       const device::EpilogueTraits& shape, int64_t k_blocks) {
  const KernelRates& rates = target.rates;
  double tensor_cores = static_cast<double>(c.tile_m) * c.tile_n * device::kBlockK /
                        rates.multiplications * kind.factor;
  if (target.shared_traffic) {
    const double shared = target.shared_traffic(c, shape) / rates.shared_bytes;
    tensor_cores =
        std::max(tensor_cores, rates.tensor_part * tensor_cores + rates.shared_part * shared);
  }
  const double bytes =
      (static_cast<double>(c.tile_m) / c.cluster_n + static_cast<double>(c.tile_n) / c.cluster_m) *
      device::kSwizzleBytes;
  const double unshared = c.cluster_size() == 1 ? rates.alone : 1.0;
  return static_cast<double>(k_blocks) *
         std::max(tensor_cores * unshared, bytes / rates.operand_bytes);
}

// Cycles of a tile whose epilogue runs during another tile's mainloop. If the epilogue takes longer
// than the mainloop, the epilogue determines the time.
double hidden_cycles(const KernelRates& rates, double mainloop, int64_t k_blocks,
                     const Epilogue& epilogue) {
  const double plane =
      rates.hidden_plane + rates.hidden_plane_of_k * static_cast<double>(k_blocks * 64);
  return std::max(mainloop + epilogue.sub_tiles * plane * epilogue.extra,
                  epilogue.sub_tiles * (rates.own_sub_tile + rates.own_plane * epilogue.extra)) +
         rates.tile / 2;
}

double tile_cycles(const Target& target, const GemmConfig& c, const TileKind& kind,
                   const SpaceWork& space, bool is_only_wave) {
  const KernelRates& rates = target.rates;
  const int64_t k_blocks = ceil_div(space.extents.k, c.block_k());
  const double mainloop = mainloop_cycles(target, c, kind, space.shape, k_blocks);
  const Epilogue epilogue{.sub_tiles = static_cast<double>(c.tile_m) * c.tile_n / (64 * 64),
                          .extra = std::max(0.0, space.planes - 1),
                          .operations = std::max(0.0, space.operations - rates.hidden_work)};
  const bool is_cooperative = c.schedule == Schedule::cooperative;
  // A large cooperative tile has few stages, which take long to fill. In a single wave, the formula
  // for several waves was closer to the measured time of such a tile.
  const bool is_large = target.accumulators(c) > 64;
  if (is_cooperative && (is_large || !is_only_wave))
    return mainloop + rates.tile +
           epilogue.sub_tiles * (rates.sub_tile + rates.exposed_plane * epilogue.extra +
                                 rates.exposed_work * epilogue.operations);
  const double hidden = hidden_cycles(rates, mainloop, k_blocks, epilogue);
  if (!is_only_wave) return hidden;
  const double sharers = is_cooperative ? device::kConsumerWarpgroups : 1;
  return hidden + epilogue.sub_tiles / sharers *
                      (rates.lone + rates.lone_plane * epilogue.extra +
                       rates.lone_work * epilogue.operations);
}

}  // namespace

int64_t cluster_tiles(const SpaceWork& space, const GemmConfig& config) {
  return device::tile_order(config, space.shape, static_cast<uint32_t>(space.extents.rows),
                            static_cast<uint32_t>(space.extents.columns), 1)
      .count();
}

int64_t clusters_of(const GemmConfig& config, uint32_t multiprocessors) {
  return std::max<int64_t>(1, multiprocessors / config.cluster_size());
}

double model_cost(const Target& target, std::span<const SpaceWork> spaces, const GemmConfig& config,
                  const TileKind& kind, uint32_t multiprocessors) {
  int64_t tiles = 0;
  for (const SpaceWork& space : spaces) tiles += cluster_tiles(space, config);
  const int64_t clusters = clusters_of(config, multiprocessors);
  const int64_t waves = ceil_div(tiles, clusters);
  double cycles = 0;
  double longest = 0;
  for (const SpaceWork& space : spaces) {
    const double one = tile_cycles(target, config, kind, space, waves == 1);
    cycles += static_cast<double>(cluster_tiles(space, config)) * one;
    longest = std::max(longest, one);
  }
  // Two CTAs of a cluster share one operand. If the tile is not square, sharing the operand of the
  // longer side is better. If the tile is square, sharing A is better (measured in joules,
  // lab/notebook/hopper.md).
  const bool is_square = config.tile_m == config.tile_n;
  const bool shares_b = config.cluster_m == 2;
  const bool is_worse = is_square ? shares_b : shares_b != (config.tile_n > config.tile_m);
  const double sharing = config.cluster_size() == 1 || !is_worse ? 1.0 : is_square ? 1.003 : 1.01;
  return sharing * (cycles / static_cast<double>(tiles) * static_cast<double>(waves)) +
         0.01 * longest;
}

}  // namespace coda::gpu
