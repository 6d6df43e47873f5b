// SPDX-License-Identifier: Apache-2.0
// The constants are fitted to lab/notebook/hopper.md.
#include "gpu/configure/config_model.h"

#include <algorithm>

#include "base/rounding.h"
#include "device/layout/tile_order.cuh"

namespace coda::gpu {
namespace {

using device::GemmConfig;
using device::Schedule;

constexpr TileKind kTiles[] = {
    {128, 256, Schedule::cooperative, 4, 1.02},  {256, 192, Schedule::cooperative, 3, 1.01},
    {192, 128, Schedule::ping_pong, 5, 1.04},    {128, 192, Schedule::ping_pong, 5, 1.06},
    {128, 128, Schedule::ping_pong, 6, 1.075},   {256, 128, Schedule::cooperative, 4, 1.05},
    {128, 64, Schedule::ping_pong, 7, 1.12},     {64, 128, Schedule::ping_pong, 7, 1.12},
    {64, 256, Schedule::ping_pong, 5, 1.10},     {64, 64, Schedule::ping_pong, 8, 1.20},
    {128, 128, Schedule::cooperative, 6, 1.095},
};

constexpr double kOperandBytes = 48;   // a cycle and SM, from L2
constexpr double kTileCycles = 480;    // what a tile costs besides
constexpr double kExposedPlane = 380;  // cycles of a cooperative sub-tile for each plane
constexpr double kExposedWork = 18;    // of a cooperative sub-tile for each operation an element
constexpr double kHiddenWork = 6;      // operations that cost nothing beside a plane's store
constexpr double kHiddenPlane = 175;   // of a ping-pong one, and more where K is long: joules
constexpr double kHiddenPlaneOfK = 0.03;

// Of a sub-tile in a launch's only wave, where nothing hides what one warpgroup's epilogue takes.
constexpr double kLone = 150;
constexpr double kLonePlane = 183;
constexpr double kLoneWork = 31;

struct Epilogue {
  double sub_tiles;
  double extra;       // planes but the first
  double operations;  // but those that cost nothing
};

double mainloop_cycles(const GemmConfig& c, const TileKind& kind, int64_t k_blocks) {
  const double tensor_cores = static_cast<double>(c.tile_m) * c.tile_n / 32 * kind.factor;
  const double bytes =
      (static_cast<double>(c.tile_m) / c.cluster_n + static_cast<double>(c.tile_n) / c.cluster_m) *
      device::kSwizzleBytes;
  const double unshared = c.cluster_size() == 1 ? 1.03 : 1.0;
  return static_cast<double>(k_blocks) * std::max(tensor_cores * unshared, bytes / kOperandBytes);
}

// With an epilogue that another mainloop hides, if it is no longer than that.
double hidden_cycles(double mainloop, int64_t k_blocks, const Epilogue& epilogue) {
  const double plane = kHiddenPlane + kHiddenPlaneOfK * static_cast<double>(k_blocks * 64);
  return std::max(mainloop + epilogue.sub_tiles * plane * epilogue.extra,
                  epilogue.sub_tiles * (150 + 250 * epilogue.extra)) +
         kTileCycles / 2;
}

double tile_cycles(const GemmConfig& c, const TileKind& kind, const SpaceWork& space,
                   bool is_only_wave) {
  const int64_t k_blocks = ceil_div(space.extents.k, c.block_k());
  const double mainloop = mainloop_cycles(c, kind, k_blocks);
  const Epilogue epilogue{.sub_tiles = static_cast<double>(c.tile_m) * c.tile_n / (64 * 64),
                          .extra = std::max(0.0, space.planes - 1),
                          .operations = std::max(0.0, space.operations - kHiddenWork)};
  const bool is_cooperative = c.schedule == Schedule::cooperative;
  // A larger cooperative tile has few stages, which take long to fill: its usual time was nearer to
  // what was measured of one wave.
  const bool is_large = c.accumulators() > 64;
  if (is_cooperative && (is_large || !is_only_wave))
    return mainloop + kTileCycles +
           epilogue.sub_tiles *
               (145 + kExposedPlane * epilogue.extra + kExposedWork * epilogue.operations);
  const double hidden = hidden_cycles(mainloop, k_blocks, epilogue);
  if (!is_only_wave) return hidden;
  const double sharers = is_cooperative ? device::kConsumerWarpgroups : 1;
  return hidden + epilogue.sub_tiles / sharers *
                      (kLone + kLonePlane * epilogue.extra + kLoneWork * epilogue.operations);
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
  int64_t tiles = 0;
  for (const SpaceWork& space : spaces) tiles += cluster_tiles(space, config);
  const int64_t clusters = clusters_of(config, multiprocessors);
  const int64_t waves = ceil_div(tiles, clusters);
  double cycles = 0;
  double longest = 0;
  for (const SpaceWork& space : spaces) {
    const double one = tile_cycles(config, kind, space, waves == 1);
    cycles += static_cast<double>(cluster_tiles(space, config)) * one;
    longest = std::max(longest, one);
  }
  // Of a tile that is no square the longer side's operand is better shared, a square one's A
  // (measured, lab/notebook/hopper.md: joules).
  const bool is_square = config.tile_m == config.tile_n;
  const bool shares_b = config.cluster_m == 2;
  const bool is_worse = is_square ? shares_b : shares_b != (config.tile_n > config.tile_m);
  const double sharing = config.cluster_size() == 1 || !is_worse ? 1.0 : is_square ? 1.003 : 1.01;
  return sharing * (cycles / static_cast<double>(tiles) * static_cast<double>(waves)) +
         0.01 * longest;
}

}  // namespace coda::gpu
