// SPDX-License-Identifier: Apache-2.0
// Emits the parts of a tile space's CUDA struct that describe data movement: its shape and extents,
// the operands of its GEMMs, and the planes that pass through shared memory.
#pragma once

#include <string>
#include <utility>

#include "gpu/codegen/launch_arguments.h"
#include "gpu/legalise/space_analysis.h"

namespace coda::gpu {

// Keeps references to the constructor's arguments.
class SpaceOperands {
 public:
  SpaceOperands(const ProgramSizes& sizes, const program::TileMap& map,
                const SpaceAnalysis& analysis, const device::GemmConfig& config,
                const std::string& name, LaunchArguments& arguments);

  // Members of the struct. The fields of the kernel's argument that they read are added to
  // `arguments`.
  std::string shape_text(bool keeps_tables) const;
  std::string extents();
  std::string operands();
  std::string planes();

  // For a step with a wide tensor: half the columns between members of a pair; else 0.
  int64_t half(int i) const;
  // Whether a wide step stores all first members before all second ones.
  bool is_concatenated(int i) const;
  // The name of an argument field that belongs to this space only.
  std::string own(const std::string& what) const;
  int64_t base() const;  // columns of the tile shape

 private:
  const Step& step(int i) const { return sizes_.step(i); }
  const TensorDecl& tensor(int t) const { return sizes_.tensor(t); }
  const TileSpace& tile_space() const { return map_.spaces[analysis_.space]; }

  std::string scales();
  std::string operand_a(const GemmSegment& segment);
  std::string operand_b(size_t part, size_t segment);
  std::string operand(TensorMapSpec spec, device::Major major, const device::OperandBox& box,
                      const std::string& role);
  std::string described(const TensorMapSpec& spec, const std::string& role);
  TensorMapSpec whole(int tensor) const;
  // The descriptor of a staged tensor's plane and the start of its box.
  std::pair<std::string, std::string> plane_box(const TileMove& move, int plane);
  // The functions for byte planes, and the line that stores one copy of one.
  std::string byte_planes();
  std::pair<std::string, std::string> byte_box(int move, int value, bool is_wide, int plane);

  const ProgramSizes& sizes_;
  const program::TileMap& map_;
  const SpaceAnalysis& analysis_;
  const device::GemmConfig& config_;
  const device::EpilogueTraits shape_;
  const std::string name_;
  LaunchArguments& arguments_;
};

}  // namespace coda::gpu
