// SPDX-License-Identifier: Apache-2.0
#include "lab/hopper_table/variants.h"

#include <algorithm>
#include <array>

namespace coda::hopper_table {
namespace {

using device::Element;
using device::EpilogueTraits;
using device::GemmConfig;
using device::OperandLayout;
using device::Schedule;

struct Tile {
  device::u32 m;
  device::u32 n;
  Schedule schedule;
};

constexpr std::array kTiles = {
    Tile{128, 128, Schedule::ping_pong},   Tile{128, 192, Schedule::ping_pong},
    Tile{192, 128, Schedule::ping_pong},   Tile{128, 256, Schedule::cooperative},
    Tile{256, 128, Schedule::cooperative}, Tile{256, 192, Schedule::cooperative},
    Tile{128, 128, Schedule::cooperative},
};

struct Cluster {
  device::u32 m;
  device::u32 n;
};

constexpr std::array kClusters = {Cluster{1, 1}, Cluster{1, 2}, Cluster{2, 1}, Cluster{2, 2}};

bool fits(const Variant& variant) {
  return device::is_valid(variant.config) &&
         device::shared_layout(variant.config, variant.shape).fits();
}

const char* schedule_name(Schedule schedule) {
  return schedule == Schedule::ping_pong ? "pp" : "co";
}

void append(std::vector<Variant>& variants, const std::vector<Variant>& more) {
  for (const Variant& variant : more) {
    const bool known = std::any_of(variants.begin(), variants.end(), [&](const Variant& other) {
      return other.name() == variant.name();
    });
    if (!known) variants.push_back(variant);
  }
}

// Pipeline depths that leave the epilogue's ring at least two groups, one to transform and one to
// move.
std::vector<Variant> with_stages(Variant variant) {
  std::vector<Variant> variants;
  for (const device::u32 stages : {3u, 4u, 5u, 6u}) {
    variant.config.stages = stages;
    if (!fits(variant)) continue;
    if (device::shared_layout(variant.config, variant.shape).rings.groups >= 2)
      variants.push_back(variant);
  }
  return variants;
}

std::string element_name(Element element) {
  return element == Element::bf16 ? "Element::bf16" : "Element::f16";
}

}  // namespace

const char* layout_name(OperandLayout layout) {
  switch (layout) {
    case OperandLayout::tn: return "tn";
    case OperandLayout::nn: return "nn";
    case OperandLayout::nt: return "nt";
    case OperandLayout::tt: return "tt";
  }
  return "?";
}

std::string Variant::tile_name() const {
  return std::to_string(config.tile_m) + "x" + std::to_string(config.tile_n) + " " +
         schedule_name(config.schedule) + " c" + std::to_string(config.cluster_m) +
         std::to_string(config.cluster_n) + " s" + std::to_string(config.stages);
}

std::string Variant::shape_name() const {
  return std::to_string(shape.loads) + "l" + std::to_string(shape.stores) + "s";
}

std::string Variant::name() const {
  std::string name = tile_name() + " " + layout_name(config.layout) + " " + shape_name();
  if (config.element == Element::f16) name += " fp16";
  return name;
}

std::vector<Variant> bare_variants(OperandLayout layout, Element element) {
  std::vector<Variant> variants;
  for (const Tile& tile : kTiles) {
    for (const Cluster& cluster : kClusters) {
      append(variants, with_stages({.config = {.tile_m = tile.m,
                                               .tile_n = tile.n,
                                               .cluster_m = cluster.m,
                                               .cluster_n = cluster.n,
                                               .schedule = tile.schedule,
                                               .layout = layout,
                                               .element = element,
                                               .element_b = element},
                                    .shape = {}}));
    }
  }
  return variants;
}

std::vector<EpilogueTraits> epilogue_menu() {
  return {{.loads = 0, .stores = 1}, {.loads = 1, .stores = 1}, {.loads = 1, .stores = 2},
          {.loads = 2, .stores = 2}, {.loads = 2, .stores = 3}, {.loads = 3, .stores = 3}};
}

std::vector<Variant> epilogue_variants(OperandLayout layout) {
  std::vector<Variant> variants;
  for (const Tile& tile : kTiles) {
    for (const Cluster& cluster : {Cluster{1, 2}, Cluster{2, 1}}) {
      for (const EpilogueTraits& shape : epilogue_menu()) {
        append(variants, with_stages({.config = {.tile_m = tile.m,
                                                 .tile_n = tile.n,
                                                 .cluster_m = cluster.m,
                                                 .cluster_n = cluster.n,
                                                 .schedule = tile.schedule,
                                                 .layout = layout},
                                      .shape = shape}));
      }
    }
  }
  return variants;
}

std::vector<Variant> all_variants() {
  std::vector<Variant> variants;
  for (const OperandLayout layout : {OperandLayout::tn, OperandLayout::nn, OperandLayout::nt}) {
    append(variants, bare_variants(layout));
  }
  append(variants, epilogue_variants(OperandLayout::tn));
  return variants;
}

std::vector<Variant> representative_variants() {
  std::vector<Variant> deepest;
  const std::vector<Variant> all = all_variants();
  for (const Variant& variant : all) {
    const GemmConfig& config = variant.config;
    if (config.cluster_n != 1 || config.cluster_m != 2) continue;
    Variant deeper = variant;
    ++deeper.config.stages;
    const bool is_deepest = std::none_of(all.begin(), all.end(), [&](const Variant& other) {
      return other.name() == deeper.name();
    });
    if (is_deepest) deepest.push_back(variant);
  }
  // Bare kernels differ by their element in one word of wgmma and one conversion.
  const std::vector<Variant> fp16 = bare_variants(OperandLayout::tn, Element::f16);
  deepest.push_back(fp16.front());
  deepest.push_back(fp16.back());
  return deepest;
}

std::string kernel_source(const Variant& variant) {
  const GemmConfig& c = variant.config;
  const EpilogueTraits& e = variant.shape;
  const auto field = [](const char* name, device::u32 value) {
    return std::string(".") + name + " = " + std::to_string(value) + ", ";
  };
  const char* layouts[] = {"OperandLayout::tn", "OperandLayout::nn", "OperandLayout::nt",
                           "OperandLayout::tt"};
  return "// " + variant.name() +
         "\n"
         "#include \"device/sm90/program_kernel.cuh\"\n"
         "#include \"lab/hopper_table/synthetic_space.cuh\"\n"
         "namespace coda::device {\n"
         "constexpr GemmConfig kConfig{" +
         field("tile_m", c.tile_m) + field("tile_n", c.tile_n) + field("cluster_m", c.cluster_m) +
         field("cluster_n", c.cluster_n) + field("stages", c.stages) + ".schedule = Schedule::" +
         (c.schedule == Schedule::ping_pong ? "ping_pong" : "cooperative") +
         ", .layout = " + layouts[static_cast<int>(c.layout)] +
         ", .element = " + element_name(c.element) + ", .element_b = " + element_name(c.element_b) +
         ", " + field("producer_registers", c.producer_registers) +
         field("consumer_registers", c.consumer_registers) +
         "};\n"
         "constexpr EpilogueTraits kTraits{" +
         field("loads", e.loads) + field("stores", e.stores) +
         "};\n"
         "extern \"C\" __global__ void __launch_bounds__(kThreads, 1)\n"
         "__cluster_dims__(kConfig.cluster_size(), 1, 1)\n"
         "gemm(const __grid_constant__ SyntheticArguments arguments) {\n"
         "  program_kernel<kConfig, SyntheticSpace<kConfig, kTraits>>(arguments, "
         "arguments.tile_counter);\n"
         "}\n"
         "}  // namespace coda::device\n";
}

}  // namespace coda::hopper_table
