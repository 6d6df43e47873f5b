// SPDX-License-Identifier: Apache-2.0
// The legality of configurations and the inputs of the cost model.
#include "gpu/configure/choose_config.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/rounding.h"
#include "coda/error.h"
#include "program/step_table.h"

namespace coda::gpu {
namespace {

using device::GemmConfig;
using device::Schedule;

std::vector<device::EpilogueTraits> shapes_of(const KernelSpaces& kernel) {
  std::vector<device::EpilogueTraits> shapes;
  for (const SpaceAnalysis& space : kernel.spaces) shapes.push_back(space.traits());
  return shapes;
}

device::RingShape ring_of(const GemmConfig& config,
                          const std::vector<device::EpilogueTraits>& shapes) {
  device::RingShape ring;
  for (const device::EpilogueTraits& shape : shapes)
    ring = device::merged(ring, device::ring_shape(config, shape));
  return ring;
}

// The number of planes of a value.
double width_of(const program::TileMap& map, int value) { return map.pairing[value].is(0) ? 1 : 2; }

int copies_of(const ByteMove& move) {
  return (move.rows >= 0 ? 1 : 0) + (move.columns >= 0 ? 1 : 0);
}

// Planes of 16 bits that the epilogue moves, including what threads move directly.
double planes_of(const ProgramSizes& sizes, const SpaceAnalysis& space) {
  double planes = 0;
  const auto add = [&](const TileMove& move, bool is_load) {
    const double width = move.is_wide ? 2 : 1;
    const Step& step = sizes.step(move.step);
    const double bytes = static_cast<double>(size_of(sizes.tensor(step.tensor()).dtype));
    switch (move.movement) {
      case Movement::staged: planes += width; break;
      case Movement::bytes: planes += is_load ? width / 2 : 0; break;  // stores are below
      case Movement::direct: planes += step.repeat().is(1) ? width * bytes / 2 : 0.5; break;
      case Movement::added: planes += 2 * width * bytes / 2; break;
      case Movement::nothing: break;
    }
  };
  for (const TileMove& load : space.loads) add(load, true);
  for (const TileMove& store : space.stores) add(store, false);
  for (const ByteMove& move : space.bytes) planes += (move.is_wide ? 1 : 0.5) * copies_of(move);
  return planes;
}

// A rough count of operations per element of the epilogue in addition to planes: a few for a
// transcendental function; an exponential and a running maximum for a log-sum-exp; ten rounds of
// Philox per two random numbers.
double operations_of(const ProgramSizes& sizes, const program::TileMap& map,
                     const SpaceAnalysis& space) {
  double work = 4.0 * static_cast<double>(space.selections.size() + space.column_partials.size());
  for (int i : map.spaces[space.space].steps) {
    const Step& step = sizes.step(i);
    if (!program::is_elementwise(step) || !map.on_tile[i]) continue;
    const double each = program::applies(step, Elementwise::random) ? 20
                        : step.operands.size() == 1                 ? 4
                                                                    : 1;
    work += each * width_of(map, i);
  }
  for (int i : space.row_partials) {
    work += info(sizes.step(i).partial()).lanes == 1 ? 2 : 20;
  }
  for (const TileMove& load : space.loads) {
    work += load.movement == Movement::direct  ? 2
            : load.movement == Movement::bytes ? (load.is_wide ? 4 : 2)
                                               : 0;
  }
  // Packing and exchanging bytes costs two to three operations per eight elements.
  for (const ByteMove& move : space.bytes) work += (move.is_wide ? 4 : 2) * copies_of(move);
  for (int i : space.maxima) work += 2 * width_of(map, sizes.step(i).operands[0]);
  return work;
}

struct RegisterUse {
  const char* what;
  uint32_t count;
};

// Registers of a thread that are live at the same time: accumulators, addresses and states, planes
// of a fragment, direct loads of a fragment, vectors, running reductions. (Values that wait for the
// end of a sub-tile reuse the registers of its accumulators.)
std::array<RegisterUse, 7> register_uses(const ProgramSizes& sizes, const SpaceAnalysis& space,
                                         const GemmConfig& config) {
  const Target& target = sizes.target();
  const device::EpilogueTraits shape = space.traits();
  const uint32_t fragment = device::takes_turns(config, shape)
                                ? 16 + 4 * shape.moved()
                                : 24 + 4 * (shape.loads + shape.stores);
  uint32_t partials = space.groups.registers;
  for (int i : space.row_partials)
    partials += 2 * static_cast<uint32_t>(info(sizes.step(i).partial()).lanes);
  return {{{"accumulators", target.accumulators(config)},
           {"addresses and staged tiles", fragment},
           {"values of rows", 2 * target.row_blocks(config) * space.row_values},
           {"vectors of columns", space.column_registers + 10 * space.column_fields},
           {"tiles that threads load", space.direct_registers},
           // Bytes of a fragment's rows, and the magnitudes of a sub-tile.
           {"8-bit copies and magnitudes",
            2 * shape.bytes + 3 * static_cast<uint32_t>(space.maxima.size())},
           {"sums of rows and groups", partials}}};
}

uint32_t registers_of(const ProgramSizes& sizes, const SpaceAnalysis& space,
                      const GemmConfig& config) {
  uint32_t registers = 0;
  for (const RegisterUse& use : register_uses(sizes, space, config)) registers += use.count;
  return registers;
}

// Whether the estimate exceeds a thread's registers. The assembler reuses consumed accumulators and
// often succeeds anyway, with 192 accumulators in most cases. So such a configuration is ranked and
// tuned, but used only if it was timed.
bool is_crowded(const ProgramSizes& sizes, const KernelSpaces& kernel, const GemmConfig& config,
                uint32_t consumed = 0) {
  return std::any_of(kernel.spaces.begin(), kernel.spaces.end(), [&](const SpaceAnalysis& space) {
    return registers_of(sizes, space, config) - consumed > sizes.target().registers;
  });
}
constexpr double kCrowded = 1.05;

// With 192 accumulators, a sub-tile's accumulators are consumed first and leave room for values of
// the others.
uint32_t consumed_of(const Target& target, const GemmConfig& config) {
  const uint32_t accumulators = target.accumulators(config);
  return accumulators - std::min(accumulators, 128U);
}

GemmConfig with_kernel(const GemmConfig& choice, const KernelSpaces& kernel) {
  return kernel.spaces.front().with_products(choice);
}

GemmConfig config_of(const TileKind& tile, const ClusterShape& cluster,
                     const KernelSpaces& kernel) {
  return with_kernel({.tile_m = tile.m,
                      .tile_n = tile.n,
                      .cluster_m = cluster.m,
                      .cluster_n = cluster.n,
                      .schedule = tile.schedule},
                     kernel);
}

// The deepest pipeline that leaves the ring two groups, one to transform and one to load; one group
// if nothing is loaded.
uint32_t usual_stages(const Target& target, const GemmConfig& config, const TileKind& tile,
                      const std::vector<device::EpilogueTraits>& shapes) {
  const bool loads =
      std::any_of(shapes.begin(), shapes.end(), [](const auto& shape) { return shape.loads != 0; });
  GemmConfig deeper = config;
  for (uint32_t stages = tile.most_stages; stages >= target.fewest_stages; --stages) {
    deeper.stages = stages;
    device::RingShape ring = ring_of(deeper, shapes);
    if (target.planes.replace_stages) ring.planes = 0;
    const SharedUse use = target.shared_use(deeper, ring);
    const uint32_t groups = ring.planes == 0 ? 0 : loads ? 2 : 1;
    // For a cooperative tile, a ring that holds its output is better than a fourth stage. A tile
    // with 64 accumulators has room for both.
    const bool is_cooperative = config.schedule == Schedule::cooperative;
    const bool is_deep = stages > target.fewest_stages && ring.planes != 0 && is_cooperative &&
                         (target.accumulators(config) > 64 || use.groups < ring.sub_tiles);
    if (use.fits && use.groups >= std::min(groups, ring.sub_tiles) && !is_deep) return stages;
  }
  return target.fewest_stages;
}

}  // namespace

std::vector<SpaceWork> work_of(const ProgramSizes& sizes, const program::TileMap& map,
                               const KernelSpaces& kernel) {
  std::vector<SpaceWork> spaces;
  for (const SpaceAnalysis& space : kernel.spaces) {
    const Shape& shape = map.spaces[space.space].shape;
    SpaceWork work{.shape = space.traits(),
                   .extents = {.rows = sizes.size(shape.rows), .columns = sizes.size(shape.cols)},
                   .planes = planes_of(sizes, space),
                   .operations = operations_of(sizes, map, space)};
    for (const GemmSegment& s : sizes.step(space.parts.front().gemm).segments()) {
      const Shape& a = sizes.tensor(s.a).shape;
      work.extents.k += sizes.size(s.transpose_a ? a.rows : a.cols);
    }
    spaces.push_back(work);
  }
  return spaces;
}

double model_cost(const Target& target, std::span<const SpaceWork> spaces, const GemmConfig& choice,
                  uint32_t multiprocessors) {
  const auto kinds = target.tiles;
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const TileKind& k) {
    return k.m == choice.tile_m && k.n == choice.tile_n && k.schedule == choice.schedule;
  });
  invariant(kind != kinds.end(), "a tile that the model knows");
  return model_cost(target, spaces, choice, *kind, multiprocessors);
}

bool is_legal(const KernelSpaces& kernel, const GemmConfig& choice) {
  const GemmConfig config = with_kernel(choice, kernel);
  const std::vector<device::EpilogueTraits> shapes = shapes_of(kernel);
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!kernel.target->is_valid(config, shapes[i])) return false;
    const bool in_halves = device::sub_tile_width(config, shapes[i]) != device::kSubTileColumns;
    if (in_halves && kernel.spaces[i].needs_whole_sub_tiles()) return false;
  }
  return kernel.target->shared_use(config, ring_of(config, shapes)).fits;
}

bool has_room(const ProgramSizes& sizes, const KernelSpaces& kernel) {
  const Target& target = sizes.target();
  for (const TileKind& tile : target.tiles) {
    for (const ClusterShape& cluster : target.clusters) {
      GemmConfig config = config_of(tile, cluster, kernel);
      for (uint32_t stages = target.fewest_stages; stages <= tile.most_stages; ++stages) {
        config.stages = stages;
        if (is_legal(kernel, config) &&
            !is_crowded(sizes, kernel, config, consumed_of(target, config)))
          return true;
      }
    }
  }
  return false;
}

std::string largest_register_uses(const ProgramSizes& sizes, const SpaceAnalysis& space) {
  const Target& target = sizes.target();
  const KernelSpaces kernel{&target, {space}};
  std::array<RegisterUse, 7> fewest{};
  uint32_t fewest_registers = UINT32_MAX;
  for (const TileKind& tile : target.tiles) {
    const GemmConfig config = config_of(tile, target.clusters[0], kernel);
    const uint32_t registers = registers_of(sizes, space, config) - consumed_of(target, config);
    if (registers >= fewest_registers) continue;
    fewest_registers = registers;
    fewest = register_uses(sizes, space, config);
  }
  std::stable_sort(fewest.begin(), fewest.end(),
                   [](const RegisterUse& a, const RegisterUse& b) { return a.count > b.count; });
  std::string text;
  for (int i = 0; i < 3; ++i)
    text += (i == 0   ? ""
             : i == 1 ? ", "
                      : " and ") +
            std::string(fewest[i].what) + " " + std::to_string(fewest[i].count);
  return text;
}

std::vector<RankedChoice> rank_choices(const ProgramSizes& sizes, const program::TileMap& map,
                                       const KernelSpaces& kernel) {
  std::vector<RankedChoice> ranked;
  const Target& target = sizes.target();
  const std::vector<SpaceWork> work = work_of(sizes, map, kernel);
  const uint32_t multiprocessors = sizes.options().multiprocessors;
  const std::vector<device::EpilogueTraits> shapes = shapes_of(kernel);
  for (const TileKind& tile : target.tiles) {
    for (const ClusterShape& cluster : target.clusters) {
      GemmConfig config = config_of(tile, cluster, kernel);
      const bool valid = std::all_of(shapes.begin(), shapes.end(), [&](const auto& shape) {
        return target.is_valid(config, shape);
      });
      if (!valid) continue;
      const uint32_t usual = usual_stages(target, config, tile, shapes);
      for (uint32_t stages = target.fewest_stages; stages <= tile.most_stages; ++stages) {
        config.stages = stages;
        if (!is_legal(kernel, config)) continue;
        const double off = 0.02 * std::abs(static_cast<int>(stages) - static_cast<int>(usual));
        const bool crowded = is_crowded(sizes, kernel, config);
        const double cost = model_cost(target, work, config, tile, multiprocessors) * (1 + off);
        ranked.push_back({config, crowded ? kCrowded * cost : cost, crowded});
      }
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const RankedChoice& a, const RankedChoice& b) { return a.cost < b.cost; });
  return ranked;
}

uint32_t grid_of(const ProgramSizes& sizes, const program::TileMap& map, const KernelSpaces& kernel,
                 const GemmConfig& choice) {
  int64_t tiles = 0;
  for (const SpaceWork& space : work_of(sizes, map, kernel))
    tiles += cluster_tiles(space, with_kernel(choice, kernel));
  if (!sizes.target().deals_tiles) return static_cast<uint32_t>(tiles);
  const int64_t clusters = clusters_of(choice, sizes.options().multiprocessors);
  const int64_t waves = std::max<int64_t>(1, ceil_div(tiles, clusters));
  return choice.cluster_size() * static_cast<uint32_t>(ceil_div(tiles, waves));
}

std::string code(const GemmConfig& choice) {
  return std::to_string(choice.tile_m) + "x" + std::to_string(choice.tile_n) +
         (choice.schedule == Schedule::ping_pong ? "p" : "c") + std::to_string(choice.cluster_m) +
         std::to_string(choice.cluster_n) + "s" + std::to_string(choice.stages);
}

std::optional<GemmConfig> parse_choice(const std::string& code_text, const Target& target) {
  GemmConfig choice;
  char schedule = 0;
  uint32_t clusters = 0;
  int used = 0;
  const int fields = std::sscanf(code_text.c_str(), "%3ux%3u%c%2us%2u%n", &choice.tile_m,
                                 &choice.tile_n, &schedule, &clusters, &choice.stages, &used);
  if (fields != 5 || code_text.size() != static_cast<size_t>(used)) return std::nullopt;
  choice.schedule = schedule == 'p' ? Schedule::ping_pong : Schedule::cooperative;
  choice.cluster_m = clusters / 10;
  choice.cluster_n = clusters % 10;
  const auto kinds = target.tiles;
  const bool is_known = std::any_of(kinds.begin(), kinds.end(), [&](const TileKind& kind) {
    return kind.m == choice.tile_m && kind.n == choice.tile_n && kind.schedule == choice.schedule &&
           choice.stages <= kind.most_stages;
  });
  if (!is_known || code(choice) != code_text || choice.cluster_size() == 0) return std::nullopt;
  return choice;
}

std::string text(const GemmConfig& choice) {
  return std::to_string(choice.tile_m) + "x" + std::to_string(choice.tile_n) +
         (choice.schedule == Schedule::ping_pong ? " ping-pong" : " cooperative") + ", cluster " +
         std::to_string(choice.cluster_m) + "x" + std::to_string(choice.cluster_n) + ", " +
         std::to_string(choice.stages) + " stages";
}

}  // namespace coda::gpu
