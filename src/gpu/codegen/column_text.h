// SPDX-License-Identifier: Apache-2.0
// Emits the functions that compute a thread's column numbers in a tile space without a GEMM, the
// divisors that these functions need, and the conditions under which the kernel can use vector
// loads and stores.
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
  // `id`: the space. If the space reduces columns, threads beyond the last column read the last
  // ones.
  ColumnText(LaunchArguments& arguments, const std::string& id, bool reduces_columns)
      : arguments_(arguments), id_(id), reduces_columns_(reduces_columns) {}

  // Returns the name of a function from the thread's element i to its column in plane w of a value.
  std::string of(const TileLayout& layout, int w);
  // The same for a table of the width of tensor t, which repeats along columns. Declares function
  // `name` of `columns`. `stride`: see declare().
  std::string in_table(const std::string& name, const std::string& columns, int t, int stride);
  // The distance between the members of a pair in groups of `pairing` columns, as a divisor.
  std::string half(const Dim& pairing);
  // Returns the name of a divisor. `number`: the expression of its value, a number of the kernel's
  // argument.
  std::string divisor(const std::string& number, int64_t value);
  // The device's template argument for whether a plane's columns are loaded as vectors.
  static std::string is_vector(const TileLayout& layout);
  // The number of columns to load if `valid` of them exist.
  std::string loaded(const std::string& valid) const;

  // Vectors are used only if all expressions added here are multiples of 16.
  void align(const std::string& bytes);
  void align_tensor(int t, bool has_rows);

  const std::vector<std::string>& aligned() const { return aligned_; }
  const std::string& divisors() const { return divisors_; }
  const std::string& functions() const { return functions_; }

 private:
  // Declares a function of i with this expression. `stride`: distance between the thread's columns
  // if vectors are used; 0: no vectors.
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
