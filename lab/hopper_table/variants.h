// SPDX-License-Identifier: Apache-2.0
// What the table compares: a mainloop configuration with a synthetic epilogue, and the menus of
// them. The structs are the device's own, so host and kernel cannot disagree about a size.
#pragma once

#include <string>
#include <vector>

#include "device/layout/shared_layout.cuh"

namespace coda::hopper_table {

struct Variant {
  device::GemmConfig config;
  device::EpilogueTraits shape;

  // For example "128x256 co c21 s4", "2l3s", and both with the layout between.
  std::string name() const;
  std::string tile_name() const;
  std::string shape_name() const;
};

// Tiles x clusters x stages that fit, bare, for one layout.
std::vector<Variant> bare_variants(device::OperandLayout layout,
                                   device::Element element = device::Element::bf16);

// What an epilogue may move besides its output, as loads and stores of the whole tile.
std::vector<device::EpilogueTraits> epilogue_menu();
// Every tile with every epilogue, the clusters pruned to those of two CTAs.
std::vector<Variant> epilogue_variants(device::OperandLayout layout);

// Every configuration that the table can time.
std::vector<Variant> all_variants();
// One of each tile, layout and epilogue, with the deepest pipeline, and two in fp16: what a machine
// without a GPU compiles.
std::vector<Variant> representative_variants();

std::string kernel_source(const Variant& variant);

const char* layout_name(device::OperandLayout layout);

}  // namespace coda::hopper_table
