// SPDX-License-Identifier: Apache-2.0
// Configurations, rates and kernel text of the sm80 target.
#include "gpu/sm80/sm80.h"

#include "device/sm80/config.cuh"
#include "gpu/target/element.h"
#include "gpu/target/pattern.h"

namespace coda::gpu {
namespace {

using device::GemmConfig;
using device::Schedule;

// In every configuration, two groups of warps share a tile.
constexpr TileKind kTiles[] = {
    {128, 128, Schedule::cooperative, 4, 1.0}, {128, 256, Schedule::cooperative, 3, 1.0},
    {256, 128, Schedule::cooperative, 3, 1.0}, {128, 64, Schedule::cooperative, 4, 1.1},
    {64, 128, Schedule::cooperative, 4, 1.1},
};

constexpr ClusterShape kClusters[] = {{1, 1}};

// The rate of the tensor cores is an A100's. The other rates are the ones fitted to Hopper.
constexpr KernelRates kRates{.multiplications = 1024,
                             .operand_bytes = 48,
                             .alone = 1,
                             .tile = 480,
                             .sub_tile = 145,
                             .exposed_plane = 380,
                             .exposed_work = 18,
                             .hidden_work = 6,
                             .hidden_plane = 175,
                             .hidden_plane_of_k = 0.03,
                             .own_sub_tile = 150,
                             .own_plane = 250,
                             .lone = 150,
                             .lone_plane = 183,
                             .lone_work = 31};

// Shared memory that a block can use on every GPU since Ampere: 99 KiB. (An A100 allows 163 KiB.)
constexpr uint32_t kSharedBytes = 99 << 10;

device::sm80::Config config_of(const GemmConfig& c) {
  return {.tile_m = c.tile_m,
          .tile_n = c.tile_n,
          .stages = c.stages,
          .layout = c.layout,
          .element = c.element};
}

bool is_valid(const GemmConfig& c, const device::EpilogueTraits& shape) {
  return c.cluster_size() == 1 && c.schedule == Schedule::cooperative && c.element == c.element_b &&
         !c.promotes && !c.has_scales && device::sm80::is_valid(config_of(c), shape);
}

SharedUse shared_use(const GemmConfig& c, const device::RingShape& ring) {
  const uint32_t bytes = device::sm80::shared_bytes(config_of(c), ring);
  return {.bytes = bytes, .groups = 0, .fits = bytes <= kSharedBytes};
}

std::string operand(const OperandText& text) {
  // Called one after another, because each call adds its name to the kernel's argument.
  const std::string address = text.address();
  const std::string stride = text.stride();
  const std::string rows = text.rows();
  const std::string columns = text.columns();
  const std::string first_row = text.first_row();
  const std::string first_column = text.first_column();
  return filled("{$, $, $, $, $, $}", {address, stride, rows, columns, first_row, first_column});
}

KernelFrame frame(const GemmConfig& c) {
  static constexpr const char* kLayouts[] = {"tn", "nn", "nt", "tt"};
  return {
      .config = filled(
          "constexpr sm80::Config kConfig{.tile_m = $, .tile_n = $, .stages = $,\n"
          "                               .layout = OperandLayout::$, .element = Element::$};\n",
          {std::to_string(c.tile_m), std::to_string(c.tile_n), std::to_string(c.stages),
           kLayouts[static_cast<int>(c.layout)], name_of(element_row(c.element).type)}),
      .headers = {"sm80/program_kernel.cuh"},
      .attributes = "__launch_bounds__(sm80::kThreads, 1)\n",
      .body = "  sm80::program_kernel<kConfig$>(a);\n"};
}

Target made(std::string_view architecture) {
  return {.name = "sm80",
          .architecture = architecture,
          .major = 8,
          .minor = 0,
          .runs_on_newer = true,
          .gpus = "A100, RTX 30 and later",
          .multiprocessors = 108,
          .registers = 232,
          .fragment = {.rows_apart = 8,
                       .columns_apart = 8,
                       .block_rows = "sm80::kBlockRows",
                       .blocks = "kConfig.blocks_m(kTraits)"},
          .tiles = kTiles,
          .clusters = kClusters,
          .fewest_stages = 2,
          .threads = device::sm80::kThreads,
          .overlaps_launches = false,
          .deals_tiles = false,
          .loads_under_mainloop = false,
          .planes = {},
          .operand_type = "sm80::StoredOperand",
          .rates = kRates,
          .multiplies = [](device::Element element) { return device::is_16_bits(element); },
          .is_valid = is_valid,
          .shared_use = shared_use,
          .accumulators =
              [](const GemmConfig& c) { return c.tile_m * c.tile_n / device::sm80::kThreads; },
          .row_blocks = [](const GemmConfig& c) { return c.tile_m / device::sm80::kBlockRows; },
          .operand = operand,
          .frame = frame,
          .measured = nullptr};
}

}  // namespace

const Target& sm80() {
  static const Target target = made("sm_80");
  return target;
}

const Target& sm80_ptx() {
  static const Target target = made("compute_80");
  return target;
}

}  // namespace coda::gpu
