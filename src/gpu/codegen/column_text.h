// SPDX-License-Identifier: Apache-2.0
// How the text of a tile space without a product says where a thread's columns stand: functions of
// the element, the divisors that they need, and what must be whole vectors for them to be.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gpu/codegen/launch_arguments.h"
#include "gpu/legalise/tile_layout.h"

namespace coda::gpu {

class ColumnText {
 public:
  // Of space `id`; where it reduces columns, those outside read the last ones.
  ColumnText(LaunchArguments& arguments, const std::string& id, bool reduces_columns)
      : arguments_(arguments), id_(id), reduces_columns_(reduces_columns) {}

  // The name of a function i -> column of the thread's element i, in plane w of a value.
  std::string of(const TileLayout& layout, int w);
  // The same in a table as wide as tensor t, which repeats: function `name` of `columns`. `stride`
  // as for declare().
  std::string in_table(const std::string& name, const std::string& columns, int t, int stride);
  // How far apart the members of pairs within `pairing` columns stand: a divisor.
  std::string half(const Dim& pairing);
  // The name of a divisor; `number` is its value as a number of the kernel's.
  std::string divisor(const std::string& number, int64_t value);
  // Whether columns of a plane are loaded as vectors: the device's template argument.
  static std::string is_vector(const TileLayout& layout);
  // How many columns are loaded where `valid` exist.
  std::string loaded(const std::string& valid) const;

  // Vectors are used where all of these are multiples of 16.
  void align(const std::string& bytes);
  void align_tensor(int t, bool has_rows);

  const std::vector<std::string>& aligned() const { return aligned_; }
  const std::string& divisors() const { return divisors_; }
  const std::string& functions() const { return functions_; }

 private:
  // A function i -> `expression`. `stride`: how far apart the thread's columns are with vectors; 0:
  // they have no vectors.
  void declare(const std::string& name, const std::string& expression, int stride);
  std::string pairing_suffix(const Dim& pairing);

  LaunchArguments& arguments_;
  const std::string id_;
  const bool reduces_columns_;
  std::set<std::string> known_;
  std::vector<Dim> pairings_;
  std::vector<std::string> aligned_;
  std::string divisors_;
  std::string functions_;
};

}  // namespace coda::gpu
