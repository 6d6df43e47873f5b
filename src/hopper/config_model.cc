// SPDX-License-Identifier: Apache-2.0
// The constants are fitted to docs/performance.md.
#include "hopper/config_model.h"

#include <algorithm>

#include "device/tile_order.cuh"

namespace coda::hopper {
namespace {

using device::GemmConfig;
using device::Schedule;

constexpr TileKind kTiles[] = {
    {128, 256, Schedule::cooperative, 4, 1.02}, {256, 192, Schedule::cooperative, 3, 1.01},
    {192, 128, Schedule::ping_pong, 5, 1.04},   {128, 192, Schedule::ping_pong, 5, 1.06},
    {128, 128, Schedule::ping_pong, 6, 1.075},  {256, 128, Schedule::cooperative, 4, 1.05},
    {128, 64, Schedule::ping_pong, 7, 1.12},    {64, 128, Schedule::ping_pong, 7, 1.12},
    {64, 256, Schedule::ping_pong, 5, 1.10},    {64, 64, Schedule::ping_pong, 8, 1.20},
};

constexpr double kOperandBytes = 48;   // a cycle and SM, from L2
constexpr double kTileCycles = 480;    // what a tile costs besides
constexpr double kExposedPlane = 380;  // cycles of a cooperative sub-tile for each plane
constexpr double kExposedWork = 18;    // of a cooperative sub-tile for each operation an element
constexpr double kHiddenWork = 6;      // operations that cost nothing beside a plane's store
constexpr double kHiddenPlane = 175;   // of a ping-pong one, and more where K is long: joules
constexpr double kHiddenPlaneOfK = 0.03;

double tile_cycles(const GemmConfig& c, const TileKind& kind, int64_t k_blocks, double planes,
                   double operations) {
  const double area = static_cast<double>(c.tile_m) * c.tile_n;
  const double tensor_cores = area / 32 * kind.factor;
  const double bytes =
      (static_cast<double>(c.tile_m) / c.cluster_n + static_cast<double>(c.tile_n) / c.cluster_m) *
      device::kBlockK * device::kElementBytes;
  const double unshared = c.cluster_size() == 1 ? 1.03 : 1.0;
  const double mainloop =
      static_cast<double>(k_blocks) * std::max(tensor_cores * unshared, bytes / kOperandBytes);
  const double sub_tiles = area / (64 * 64);
  const double extra = std::max(0.0, planes - 1);
  if (c.schedule == Schedule::cooperative)
    return mainloop + kTileCycles +
           sub_tiles * (145 + kExposedPlane * extra +
                        kExposedWork * std::max(0.0, operations - kHiddenWork));
  const double plane = kHiddenPlane + kHiddenPlaneOfK * static_cast<double>(k_blocks * 64);
  const double epilogue = sub_tiles * (150 + 250 * extra);
  // The other warpgroup's mainloop hides an epilogue no longer than itself.
  return std::max(mainloop + sub_tiles * plane * extra, epilogue) + kTileCycles / 2;
}

}  // namespace

std::span<const TileKind> tile_kinds() { return kTiles; }

int64_t cluster_tiles(const SpaceWork& space, const GemmConfig& config) {
  return device::tile_order(config, space.shape, static_cast<uint32_t>(space.extents.rows),
                            static_cast<uint32_t>(space.extents.columns), 1)
      .count();
}

int64_t clusters_of(const GemmConfig& config, uint32_t multiprocessors) {
  return std::max<int64_t>(1, multiprocessors / config.cluster_size());
}

double model_cost(std::span<const SpaceWork> spaces, const GemmConfig& config, const TileKind& kind,
                  uint32_t multiprocessors) {
  double cycles = 0;
  double longest = 0;
  int64_t tiles = 0;
  for (const SpaceWork& space : spaces) {
    const int64_t count = cluster_tiles(space, config);
    const int64_t k_blocks = (space.extents.k + device::kBlockK - 1) / device::kBlockK;
    const double one = tile_cycles(config, kind, k_blocks, space.planes, space.operations);
    cycles += static_cast<double>(count) * one;
    longest = std::max(longest, one);
    tiles += count;
  }
  const int64_t clusters = clusters_of(config, multiprocessors);
  const int64_t waves = (tiles + clusters - 1) / clusters;
  // Square tiles share better along N (measured: 0.01 to 0.02 of the time behind most epilogues).
  const double sharing = config.tile_m == config.tile_n && config.cluster_m == 2 ? 1.003 : 1.0;
  return sharing * (cycles / static_cast<double>(tiles) * static_cast<double>(waves)) +
         0.01 * longest;
}

}  // namespace coda::hopper
