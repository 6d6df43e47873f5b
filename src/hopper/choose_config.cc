// SPDX-License-Identifier: Apache-2.0
// The model: a tile's time is its mainloop (tensor cores or operand bandwidth, whichever is slower)
// and as much of its epilogue as its schedule exposes; a launch's time is that of its tiles, dealt
// out in whole waves. The constants are fitted to docs/performance.md; only ratios matter.
#include "hopper/choose_config.h"

#include <algorithm>

#include "device/tile_order.cuh"
#include "hopper/gemm_kernels.h"
#include "hopper/separate_spaces.h"

namespace coda::hopper {
namespace {

using device::GemmConfig;
using device::Schedule;

struct Tile {
  uint32_t m;
  uint32_t n;
  Schedule schedule;
  uint32_t most_stages;
  double factor;  // over the tensor cores' own time, in a long mainloop
};

constexpr Tile kTiles[] = {
    {128, 256, Schedule::cooperative, 4, 1.02}, {256, 192, Schedule::cooperative, 3, 1.01},
    {192, 128, Schedule::ping_pong, 5, 1.04},   {128, 192, Schedule::ping_pong, 5, 1.06},
    {128, 128, Schedule::ping_pong, 6, 1.075},  {256, 128, Schedule::cooperative, 4, 1.05},
    {128, 64, Schedule::ping_pong, 7, 1.12},    {64, 128, Schedule::ping_pong, 7, 1.12},
    {64, 256, Schedule::ping_pong, 5, 1.10},    {64, 64, Schedule::ping_pong, 8, 1.20},
};

struct Cluster {
  uint32_t m;
  uint32_t n;
};
constexpr Cluster kClusters[] = {{2, 1}, {1, 2}, {1, 1}};

constexpr uint32_t kFewestStages = 3;
constexpr double kOperandBytes = 48;   // a cycle and SM, from L2
constexpr double kTileCycles = 480;    // what a tile costs besides
constexpr double kExposedPlane = 380;  // cycles of a cooperative sub-tile for each plane
constexpr double kExposedWork = 18;    // of a cooperative sub-tile for each operation an element
constexpr double kHiddenWork = 6;      // operations that cost nothing beside a plane's store
constexpr double kHiddenPlane = 175;   // of a ping-pong one, and more where K is long: joules
constexpr double kHiddenPlaneOfK = 0.03;

std::vector<device::SpaceShape> shapes_of(const KernelSpaces& kernel) {
  std::vector<device::SpaceShape> shapes;
  for (const SpaceAnalysis& space : kernel.spaces) shapes.push_back(space.shape());
  return shapes;
}

device::RingShape ring_of(const GemmConfig& config, const std::vector<device::SpaceShape>& shapes) {
  device::RingShape ring;
  for (const device::SpaceShape& shape : shapes)
    ring = device::merged(ring, device::ring_shape(config, shape));
  return ring;
}

// Of the epilogue, in planes of 16 bits: what threads move themselves counts too.
double planes_of(const ProgramSizes& sizes, const SpaceAnalysis& space) {
  double planes = 0;
  const auto add = [&](const TileMove& move) {
    const double width = move.is_wide ? 2 : 1;
    const Step& step = sizes.step(move.step);
    const double bytes = static_cast<double>(size_of(sizes.tensor(step.tensor).dtype));
    switch (move.movement) {
      case Movement::staged: planes += width; break;
      case Movement::direct: planes += step.repeat == 1 ? width * bytes / 2 : 0.5; break;
      case Movement::added: planes += 2 * width * bytes / 2; break;
      case Movement::nothing: break;
    }
  };
  for (const TileMove& load : space.loads) add(load);
  for (const TileMove& store : space.stores) add(store);
  return planes;
}

// Operations for each element of the epilogue beside planes, roughly: a transcendental function is
// a few, a log-sum-exp an exponential and a running maximum.
double work_of(const ProgramSizes& sizes, const program::TileMap& map, const SpaceAnalysis& space) {
  double work = 4.0 * static_cast<double>(space.selections.size() + space.column_partials.size());
  for (int i : map.spaces[space.space].steps) {
    const Step& step = sizes.step(i);
    if (step.kind != StepKind::elementwise || !map.on_tile[i]) continue;
    const bool is_wide = !map.pairing[i].is(0);
    work += (step.operands.size() == 1 ? 4 : 1) * (is_wide ? 2 : 1);
  }
  for (int i : space.row_partials) {
    const PartialKind kind = sizes.step(i).partial;
    work += kind == PartialKind::sum || kind == PartialKind::max ? 2 : 20;
  }
  for (const TileMove& load : space.loads) work += load.movement == Movement::direct ? 2 : 0;
  return work;
}

// Registers that a thread may need, roughly: accumulators, addresses and states, the planes of a
// chunk, direct loads of a chunk, vectors, running reductions. Kernels at the limit are compiled in
// tests.
uint32_t registers_of(const ProgramSizes& sizes, const SpaceAnalysis& space,
                      const GemmConfig& config) {
  const device::SpaceShape shape = space.shape();
  uint32_t registers = config.accumulators() + 24 + 4 * (shape.loads + shape.stores) +
                       2 * config.blocks_m() * space.row_values + space.column_registers +
                       space.direct_registers + 10 * space.column_fields;
  for (int i : space.row_partials) {
    const PartialKind kind = sizes.step(i).partial;
    registers += kind == PartialKind::sum || kind == PartialKind::max ? 2 : 14;
  }
  return registers;
}

constexpr uint32_t kMostRegisters = 232;

double tile_cycles(const GemmConfig& c, const Tile& tile, int64_t k_blocks, double planes,
                   double work) {
  const double area = static_cast<double>(c.tile_m) * c.tile_n;
  const double tensor_cores = area / 32 * tile.factor;
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
           sub_tiles *
               (145 + kExposedPlane * extra + kExposedWork * std::max(0.0, work - kHiddenWork));
  const double plane = kHiddenPlane + kHiddenPlaneOfK * static_cast<double>(k_blocks * 64);
  const double epilogue = sub_tiles * (150 + 250 * extra);
  // The other warpgroup's mainloop hides an epilogue no longer than itself.
  return std::max(mainloop + sub_tiles * plane * extra, epilogue) + kTileCycles / 2;
}

int64_t k_blocks_of(const ProgramSizes& sizes, const SpaceAnalysis& space) {
  int64_t blocks = 0;
  for (const GemmSegment& s : sizes.step(space.parts.front().gemm).segments) {
    const Shape& shape = sizes.tensor(s.a).shape;
    const int64_t k = sizes.size(s.transpose_a ? shape.rows : shape.cols);
    blocks += (k + device::kBlockK - 1) / device::kBlockK;
  }
  return blocks;
}

int64_t cluster_tiles(const ProgramSizes& sizes, const program::TileMap& map,
                      const SpaceAnalysis& space, const GemmConfig& config) {
  const Shape& shape = map.spaces[space.space].shape;
  return device::tile_order(config, space.shape(), static_cast<uint32_t>(sizes.size(shape.rows)),
                            static_cast<uint32_t>(sizes.size(shape.cols)), 1)
      .count();
}

int64_t clusters_of(const ProgramSizes& sizes, const GemmConfig& config) {
  return std::max<int64_t>(1, sizes.options().multiprocessors / config.cluster_size());
}

double cost(const ProgramSizes& sizes, const program::TileMap& map, const KernelSpaces& kernel,
            const GemmConfig& config, const Tile& tile) {
  double cycles = 0;
  double longest = 0;
  int64_t tiles = 0;
  for (const SpaceAnalysis& space : kernel.spaces) {
    const int64_t count = cluster_tiles(sizes, map, space, config);
    const double one = tile_cycles(config, tile, k_blocks_of(sizes, space), planes_of(sizes, space),
                                   work_of(sizes, map, space));
    cycles += static_cast<double>(count) * one;
    longest = std::max(longest, one);
    tiles += count;
  }
  const int64_t clusters = clusters_of(sizes, config);
  const int64_t waves = (tiles + clusters - 1) / clusters;
  // Square tiles share better along N (measured: 0.01 to 0.02 of the time behind most epilogues).
  const double sharing = config.tile_m == config.tile_n && config.cluster_m == 2 ? 1.003 : 1.0;
  return sharing * (cycles / static_cast<double>(tiles) * static_cast<double>(waves)) +
         0.01 * longest;
}

GemmConfig with_kernel(GemmConfig choice, const KernelSpaces& kernel) {
  choice.layout = kernel.spaces.front().layout;
  choice.element = kernel.spaces.front().element;
  return choice;
}

// The deepest pipeline that leaves the ring two groups, one to transform and one to load; where
// nothing is loaded one is enough.
uint32_t usual_stages(const GemmConfig& config, const Tile& tile,
                      const std::vector<device::SpaceShape>& shapes) {
  const bool loads =
      std::any_of(shapes.begin(), shapes.end(), [](const auto& shape) { return shape.loads != 0; });
  GemmConfig deeper = config;
  for (uint32_t stages = tile.most_stages; stages >= kFewestStages; --stages) {
    deeper.stages = stages;
    const device::RingShape ring = ring_of(deeper, shapes);
    const device::SharedLayout layout = device::shared_layout(deeper, ring);
    const uint32_t groups = ring.planes == 0 ? 0 : loads ? 2 : 1;
    // A cooperative tile gains more from a ring that holds its output than from a fourth stage.
    const bool is_deep =
        stages > kFewestStages && ring.planes != 0 && config.schedule == Schedule::cooperative;
    if (layout.fits() && layout.groups >= std::min(groups, ring.sub_tiles) && !is_deep)
      return stages;
  }
  return kFewestStages;
}

}  // namespace

bool is_legal(const ProgramSizes& sizes, const KernelSpaces& kernel, const GemmChoice& choice) {
  const GemmConfig config = with_kernel(choice, kernel);
  const std::vector<device::SpaceShape> shapes = shapes_of(kernel);
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!device::is_valid(config, shapes[i])) return false;
    // With 192 accumulators nothing but one space's values has room.
    const bool is_crowded = config.accumulators() > 128 && (shapes[i].planes() > 2 || i > 0);
    if (is_crowded || registers_of(sizes, kernel.spaces[i], config) > kMostRegisters) return false;
  }
  return device::shared_layout(config, ring_of(config, shapes)).fits();
}

std::vector<GemmChoice> rank_choices(const ProgramSizes& sizes, const program::TileMap& map,
                                     const KernelSpaces& kernel) {
  struct Ranked {
    GemmChoice choice;
    double cost;
  };
  std::vector<Ranked> ranked;
  const std::vector<device::SpaceShape> shapes = shapes_of(kernel);
  for (const Tile& tile : kTiles) {
    for (const Cluster& cluster : kClusters) {
      GemmConfig config = with_kernel({.tile_m = tile.m,
                                       .tile_n = tile.n,
                                       .cluster_m = cluster.m,
                                       .cluster_n = cluster.n,
                                       .schedule = tile.schedule},
                                      kernel);
      const bool valid = std::all_of(shapes.begin(), shapes.end(), [&](const auto& shape) {
        return device::is_valid(config, shape);
      });
      if (!valid) continue;
      const uint32_t usual = usual_stages(config, tile, shapes);
      for (uint32_t stages = kFewestStages; stages <= tile.most_stages; ++stages) {
        config.stages = stages;
        if (!is_legal(sizes, kernel, config)) continue;
        const double off = 0.02 * std::abs(static_cast<int>(stages) - static_cast<int>(usual));
        ranked.push_back({config, cost(sizes, map, kernel, config, tile) * (1 + off)});
      }
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.cost < b.cost; });
  std::vector<GemmChoice> choices;
  for (const Ranked& one : ranked) choices.push_back(one.choice);
  return choices;
}

uint32_t grid_of(const ProgramSizes& sizes, const program::TileMap& map, const KernelSpaces& kernel,
                 const GemmChoice& choice) {
  int64_t tiles = 0;
  for (const SpaceAnalysis& space : kernel.spaces)
    tiles += cluster_tiles(sizes, map, space, with_kernel(choice, kernel));
  const int64_t clusters = clusters_of(sizes, choice);
  const int64_t waves = std::max<int64_t>(1, (tiles + clusters - 1) / clusters);
  return choice.cluster_size() * static_cast<uint32_t>((tiles + waves - 1) / waves);
}

std::vector<GemmChoice> legal_choices(const Program& given, const DimValues& sizes,
                                      const LowerOptions& options) {
  const Program program = with_separate_products(given);
  const ProgramSizes program_sizes(program, sizes, options);
  const program::TileMap map = program::map_tiles(program);
  const std::vector<KernelSpaces> kernels = gemm_kernels(program_sizes, map);
  if (kernels.empty()) return {};
  return rank_choices(program_sizes, map, kernels.front());
}

std::string text(const GemmChoice& choice) {
  return std::to_string(choice.tile_m) + "x" + std::to_string(choice.tile_n) +
         (choice.schedule == Schedule::ping_pong ? " ping-pong" : " cooperative") + ", cluster " +
         std::to_string(choice.cluster_m) + "x" + std::to_string(choice.cluster_n) + ", " +
         std::to_string(choice.stages) + " stages";
}

}  // namespace coda::hopper
