// SPDX-License-Identifier: Apache-2.0
// Configurations, rates and kernel text of the sm90 target.
#include "gpu/sm90/sm90.h"

#include "coda/error.h"
#include "gpu/target/element.h"
#include "gpu/target/pattern.h"

namespace coda::gpu {

std::span<const EmbeddedText> sm90_measured();  // tuned_rows*.txt

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

constexpr ClusterShape kClusters[] = {{2, 1}, {1, 2}, {1, 1}};

// Fitted to the measurements in lab/notebook/hopper.md.
constexpr KernelRates kRates{.multiplications = 2048,
                             .operand_bytes = 48,
                             .alone = 1.03,
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

SharedUse shared_use(const GemmConfig& config, const device::RingShape& ring) {
  const device::SharedLayout layout = device::shared_layout(config, ring);
  return {.bytes = layout.bytes, .groups = layout.rings.groups, .fits = layout.fits()};
}

std::string element_text(device::Element element) {
  return "Element::" + std::string(name_of(element_row(element).type));
}

KernelFrame frame(const GemmConfig& c) {
  static constexpr const char* kLayouts[] = {"tn", "nn", "nt", "tt"};
  const auto field = [](const char* name, uint32_t value) {
    return filled(".$ = $, ", {name, std::to_string(value)});
  };
  return {
      .config = filled(
          "constexpr GemmConfig kConfig{$$$$$\n                             .schedule = "
          "Schedule::$, .layout = OperandLayout::$, .element = $$$$};\n",
          {field("tile_m", c.tile_m), field("tile_n", c.tile_n), field("cluster_m", c.cluster_m),
           field("cluster_n", c.cluster_n), field("stages", c.stages),
           c.schedule == Schedule::ping_pong ? "ping_pong" : "cooperative",
           kLayouts[static_cast<int>(c.layout)], element_text(c.element),
           c.element_b == GemmConfig{}.element_b ? ""
                                                 : ", .element_b = " + element_text(c.element_b),
           c.promotes ? ", .promotes = true" : "", c.has_scales ? ", .has_scales = true" : ""}),
      .headers = {"sm90/program_kernel.cuh"},
      .attributes =
          "__launch_bounds__(kThreads, 1)\n"
          "__cluster_dims__(kConfig.cluster_size(), 1, 1)\n",
      .body = "  program_kernel<kConfig$>(a, $);\n"};
}

}  // namespace

const Target& sm90() {
  static const Target target{
      .name = "sm90",
      .folder = "sm90",
      .architecture = "sm_90a",
      .major = 9,
      .minor = 0,
      .gpus = "H100, H200",
      .shared_bytes = device::kSharedMemoryPerBlock,
      .multiprocessors = 132,
      .registers = GemmConfig{}.consumer_registers,
      .fragment = {.rows_apart = 8,
                   .columns_apart = 8,
                   .block_rows = "kWgmmaM",
                   .blocks = "kConfig.blocks_m()"},
      .tiles = kTiles,
      .clusters = kClusters,
      .fewest_stages = 3,
      .threads = device::kThreads,
      .overlaps_launches = true,
      .has_eight_bits = true,
      .adds_in_memory = true,
      .deals_tiles = true,
      .loads_under_mainloop = true,
      .planes = {.most = 8,
                 .most_bytes = 6,
                 .load = "if (plane == $) tma_load_once(destination, $, $, row, barrier);",
                 .store = "if (plane == $) tma_store_once($, $, row, source);",
                 .store_bytes = "if (half == $) tma_store_once($, $, row, source);",
                 .store_bytes_turned = "if (half == $) tma_store_once($, row, $, source);"},
      .operand_type = "const TensorMap*",
      .rates = kRates,
      .multiplies = [](device::Element element) { return device::is_operand(element); },
      .is_valid =
          [](const GemmConfig& config, const device::EpilogueTraits& shape) {
            return device::is_valid(config, shape);
          },
      .shared_use = shared_use,
      .accumulators = [](const GemmConfig& config) { return config.accumulators(); },
      .row_blocks = [](const GemmConfig& config) { return config.blocks_m(); },
      .operand = [](const OperandText& text) { return "&" + text.descriptor(); },
      .frame = frame,
      .measured = sm90_measured};
  return target;
}

}  // namespace coda::gpu
