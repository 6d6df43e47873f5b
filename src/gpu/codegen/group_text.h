// SPDX-License-Identifier: Apache-2.0
// Emits the values of a tile space that have one column per group of columns (sums over heads and
// values computed from them): the struct `Groups` and the functions that fill it before the
// sub-tiles (device/epilogue/group_values.cuh). The emitter of fragments writes the sums
// themselves.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu/codegen/function_text.h"
#include "gpu/codegen/row_values.h"
#include "gpu/codegen/space_places.h"

namespace coda::gpu {

// Keeps references to the constructor's arguments.
class GroupText {
 public:
  GroupText(const ProgramSizes& sizes, const program::TileMap& map, const SpaceAnalysis& analysis,
            SpacePlaces& places, ValueNames& names, RowValues& rows, LaunchArguments& arguments);

  bool empty() const { return analysis_.groups.span == 0; }

  // The field of Groups for plane `plane` of value i, or of the value that reads it there.
  std::string field(int i, int plane);
  // The needed sums that walk `walk` computes.
  std::vector<int> sums_of(uint32_t walk) const;
  // Writes the lines of all values that read Groups; call it before the texts below.
  void write();

  std::string fields_text() const;
  std::string begin_text() const;
  std::string end_text() const;  // the functions that end a walk
  std::string next_text() const;

 private:
  using At = ValueText::At;
  const Step& step(int i) const { return sizes_.step(i); }
  void find_live();
  void write_step(int i, int plane);
  std::optional<std::string> source(const At& at);
  std::optional<std::string> tile(const At& at);
  std::string element(const At& at) { return field(at.step, at.plane) + ".value[eight][pair]"; }
  Body& lines_of(int i) { return lines_[analysis_.groups.known.at(i)]; }
  std::string eight_column() const;
  std::string column(int reader, int plane, const std::string& base_column) const;
  std::string place(int i, int plane, const std::string& row, const std::string& base_column);
  int step_with(const Dim& pairing) const;

  const ProgramSizes& sizes_;
  const program::TileMap& map_;
  const SpaceAnalysis& analysis_;
  SpacePlaces& places_;
  ValueNames& names_;
  RowValues& rows_;
  LaunchArguments& arguments_;
  ValueText values_;
  std::set<int> live_;                                      // steps that effects need
  std::vector<std::pair<std::string, std::string>> types_;  // types and names of the fields
  std::vector<Body> lines_;                                 // lines to run after that many walks
};

}  // namespace coda::gpu
