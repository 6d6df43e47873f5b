// SPDX-License-Identifier: Apache-2.0
// Configurations, rates and kernel text of the sm80 and sm89 targets.
#include "gpu/sm80/sm80.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "coda/error.h"
#include "device/sm80/config.cuh"
#include "gpu/target/element.h"
#include "gpu/target/pattern.h"

namespace coda::gpu {
namespace {

using device::GemmConfig;
using device::Schedule;

// In every configuration, two groups of warps share a tile.
constexpr TileKind kTiles[] = {
    {256, 128, Schedule::cooperative, 3, 1.0}, {128, 256, Schedule::cooperative, 3, 1.0},
    {128, 128, Schedule::cooperative, 4, 1.0}, {128, 64, Schedule::cooperative, 4, 1.0},
    {64, 128, Schedule::cooperative, 4, 1.0},
};

constexpr ClusterShape kClusters[] = {{1, 1}};

// The rate of the tensor cores is an A100's, for GPUs whose cards publish none for mma.sync. The
// parts of tensor cores and shared memory were fitted to all tiles of 20 programs on an H200
// (lab/notebook/hopper.md), the other rates to Hopper's kernels.
constexpr KernelRates kRates{.multiplications = 1024,
                             .operand_bytes = 48,
                             .shared_bytes = 128,
                             .tensor_part = 0.73,
                             .shared_part = 0.68,
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

// Shared memory that a block may use: on every GPU since Ampere, and on data-centre GPUs.
constexpr uint32_t kSharedBytes = 99 << 10;
constexpr uint32_t kLargeSharedBytes = 163 << 10;

device::sm80::Config config_of(const GemmConfig& c) {
  return {.tile_m = c.tile_m,
          .tile_n = c.tile_n,
          .stages = c.stages,
          .layout = c.layout,
          .element = c.element,
          .element_b = c.element_b,
          .promotes = c.promotes,
          .has_scales = c.has_scales};
}

bool is_valid(const GemmConfig& c, const device::EpilogueTraits& shape) {
  return c.cluster_size() == 1 && c.schedule == Schedule::cooperative &&
         device::sm80::is_valid(config_of(c), shape);
}

// The copies write each stage once. Each of the eight warps reads the fragments of its own rows and
// columns.
uint32_t shared_traffic(const GemmConfig& c, const device::EpilogueTraits& shape) {
  const device::sm80::Config config = config_of(c);
  const uint32_t rows = config.blocks_m(shape) * device::sm80::kBlockRows / 4;
  const uint32_t columns = config.group_columns(shape) * shape.parts;
  const uint32_t warps = device::sm80::kThreads / device::kWarpSize;
  return config.stage_bytes() + warps * (rows + columns) * device::kSwizzleBytes;
}

template <uint32_t kMostBytes>
SharedUse shared_use(const GemmConfig& c, const device::RingShape& ring) {
  const uint32_t bytes = device::sm80::shared_bytes(config_of(c), ring);
  return {.bytes = bytes, .groups = 0, .fits = bytes <= kMostBytes};
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
  return {.config = filled(
              "constexpr sm80::Config kConfig{.tile_m = $, .tile_n = $, .stages = $,\n"
              "                               .layout = OperandLayout::$, .element = Element::$,\n"
              "                               .element_b = Element::$$$};\n",
              {std::to_string(c.tile_m), std::to_string(c.tile_n), std::to_string(c.stages),
               kLayouts[static_cast<int>(c.layout)], name_of(element_row(c.element).type),
               name_of(element_row(c.element_b).type), c.promotes ? ", .promotes = true" : "",
               c.has_scales ? ", .has_scales = true" : ""}),
          .headers = {"sm80/program_kernel.cuh"},
          .attributes = "__launch_bounds__(sm80::kThreads, 1)\n",
          .body = "  sm80::program_kernel<kConfig$>(a);\n"};
}

// What distinguishes the GPUs of one compute capability.
struct Architecture {
  int major;
  int minor;
  std::string_view name;
  CompilerVersion compiler;
  std::string_view gpus;
  uint32_t multiprocessors;  // of the first of `gpus`
  bool has_large_shared_memory;

  bool is_ptx() const { return name.starts_with("compute_"); }
  bool has_eight_bits() const { return std::pair(major, minor) >= std::pair(8, 9); }
};

constexpr std::string_view kPtx = "compute_80";
constexpr std::string_view kPtxOfAda = "compute_89";

constexpr Architecture kArchitectures[] = {
    {8, 0, "sm_80", {11, 0}, "A100, A30", 108, true},
    {8, 6, "sm_86", {11, 1}, "RTX 3090, RTX 30, A40, A10", 82, false},
    {8, 7, "sm_87", {11, 4}, "Jetson Orin", 16, true},
    {8, 9, "sm_89", {11, 8}, "RTX 4090, RTX 40, L40S, L4", 128, false},
    {9, 0, "sm_90", {11, 8}, "H100, H200", 132, true},
    {10, 0, "sm_100", {12, 8}, "B200, GB200", 148, true},
    {10, 3, "sm_103", {12, 9}, "B300, GB300", 148, true},
    {12, 0, "sm_120", {12, 8}, "RTX 5090, RTX 50, RTX PRO 6000", 170, false},
    {12, 1, "sm_121", {12, 9}, "GB10", 48, false},
    {8, 9, kPtxOfAda, {11, 8}, "RTX 40, RTX 50 and later", 128, false},
    {8, 0, kPtx, {11, 0}, "A100, RTX 30 and later", 108, false},
};

// The published rate of Hopper's cards is wgmma's, and that of B200 is tcgen05's. A loop of
// mma.sync has 583 TFLOP/s on an H200.
void set_rate(const GpuCard& card, KernelRates& rates) {
  if (card.major == 9) rates.multiplications = 1330;
  if (card.boost_mhz != 0 && card.major != 9)
    rates.multiplications = card.flops / (2e6 * card.boost_mhz * card.multiprocessors);
}

// Those of the first card of this capability.
KernelRates rates_of_first_card(const Architecture& of) {
  KernelRates rates = kRates;
  const auto card = std::ranges::find_if(gpu_cards(), [&](const GpuCard& one) {
    return one.major == of.major && one.minor == of.minor;
  });
  if (card != gpu_cards().end()) set_rate(*card, rates);
  return rates;
}

Target made(const Architecture& of, bool with_eight_bits) {
  return {.name = with_eight_bits ? "sm89" : "sm80",
          .folder = "sm80",
          .architecture = of.name,
          .compiler = of.compiler,
          .ptx = with_eight_bits ? kPtxOfAda : kPtx,
          .major = of.major,
          .minor = of.minor,
          .runs_on_newer = of.is_ptx(),
          .gpus = of.gpus,
          .shared_bytes = of.has_large_shared_memory ? kLargeSharedBytes : kSharedBytes,
          .multiprocessors = of.multiprocessors,
          .registers = 228,
          .fragment = {.rows_apart = 8,
                       .columns_apart = 8,
                       .block_rows = "sm80::kBlockRows",
                       .blocks = "kConfig.blocks_m(kTraits)"},
          .tiles = kTiles,
          .clusters = kClusters,
          .fewest_stages = 2,
          .threads = device::sm80::kThreads,
          .overlaps_launches = false,
          .has_eight_bits = with_eight_bits,
          .deals_tiles = false,
          .loads_under_mainloop = false,
          .planes = {.most = 8,
                     .load = "if (plane == $) sm80::load_plane(destination, $, row, $, "
                             "plane >= kTraits.word_loads());",
                     .store = "if (plane == $) sm80::store_plane(source, $, row, $);",
                     .replace_stages = true},
          .operand_type = "sm80::StoredOperand",
          .rates = rates_of_first_card(of),
          .multiplies = with_eight_bits
                            ? [](device::Element element) { return device::is_operand(element); }
                            : [](device::Element element) { return device::is_16_bits(element); },
          .is_valid = is_valid,
          .shared_use =
              of.has_large_shared_memory ? shared_use<kLargeSharedBytes> : shared_use<kSharedBytes>,
          .shared_traffic = shared_traffic,
          .accumulators =
              [](const GemmConfig& c) { return c.tile_m * c.tile_n / device::sm80::kThreads; },
          .row_blocks = [](const GemmConfig& c) { return c.tile_m / device::sm80::kBlockRows; },
          .operand = operand,
          .frame = frame,
          .measured = nullptr};
}

}  // namespace

std::span<const Target> sm80_targets() {
  static const std::vector<Target> targets = [] {
    std::vector<Target> all;
    for (const Architecture& architecture : kArchitectures) {
      if (architecture.has_eight_bits()) all.push_back(made(architecture, true));
      if (architecture.name != kPtxOfAda) all.push_back(made(architecture, false));
    }
    return all;
  }();
  return targets;
}

const Target& sm80() { return sm80_for(8, 0); }
const Target& sm89() { return sm80_for(8, 9); }

const Target& sm80_for(int major, int minor, bool with_eight_bits) {
  const auto capability = std::pair(major, minor);
  const bool eight_bits = with_eight_bits && capability >= std::pair(8, 9);
  for (const Target& target : sm80_targets()) {
    if (target.has_eight_bits != eight_bits) continue;
    if (target.runs_on_newer || std::pair(target.major, target.minor) == capability) return target;
  }
  throw InternalError("a target for every capability");
}

const Target& with_rates_of(const Target& target, const GpuCard& card) {
  static std::mutex mutex;
  static std::list<std::pair<std::pair<const Target*, const GpuCard*>, Target>> known;
  const std::lock_guard lock(mutex);
  const std::pair key(&target, &card);
  const auto found = std::ranges::find(known, key, [](const auto& one) { return one.first; });
  if (found != known.end()) return found->second;
  Target own = target;
  own.multiprocessors = static_cast<uint32_t>(card.multiprocessors);
  set_rate(card, own.rates);
  return known.emplace_back(key, own).second;
}

}  // namespace coda::gpu
