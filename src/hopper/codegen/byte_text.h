// SPDX-License-Identifier: Apache-2.0
// What an epilogue leaves in 8 bits, as text of its CUDA struct: copies along rows and along
// columns, and the largest magnitude (device/epilogue/fragment_bytes.cuh). Both copies of a value
// are of the same bytes, which are packed once.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "hopper/codegen/function_text.h"
#include "hopper/codegen/space_places.h"
#include "hopper/codegen/value_names.h"

namespace coda::hopper {

// The parts of the struct that lines go to.
struct ByteLines {
  Body& before;      // a fragment's pairs
  Body& pairs;       // one of them
  Body& after;       // all of them
  Body& sub_fields;  // what a sub-tile carries
  Body& sub_begin;
  Body& sub_end;
};

// Refers to what it is made of, which outlives it.
class ByteText {
 public:
  ByteText(const ProgramSizes& sizes, SpacePlaces& places, ValueNames& names,
           LaunchArguments& arguments, ByteLines lines)
      : sizes_(sizes), places_(places), names_(names), arguments_(arguments), lines_(lines) {}

  // Plane `plane` of the value of step `from`, which is named `value`, leaves by step i; so does
  // its magnitude, that of the `valid` first of a pair.
  void store(int i, int from, int plane, const std::string& value);
  void store_transposed(int i, int from, int plane, const std::string& value);
  void raise(int i, int from, const std::string& value, const std::string& valid);

 private:
  std::string bytes(int i, int from, int plane, const std::string& value);
  void store_by(const char* function, int i, const std::string& bytes, const std::string& place);

  const ProgramSizes& sizes_;
  SpacePlaces& places_;
  ValueNames& names_;
  LaunchArguments& arguments_;
  ByteLines lines_;
  std::map<std::tuple<int, int, DType>, std::string> bytes_;  // step, plane
  std::map<int, std::string> largest_;                        // step of the effect
};

}  // namespace coda::hopper
