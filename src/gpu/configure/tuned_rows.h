// SPDX-License-Identifier: Apache-2.0
// Measured times of configurations as text, one row for each kernel and size. The shipped tables
// (tuned_rows*.txt) and the file of `coda tune` use this format:
//     class | extents of its spaces | configuration microseconds, fastest first
//     tn p1 l1 s2 w1 rs | 16384x4096x4096 | 128x128p12s6 831.2 192x128p12s5 840.0
// Invariant: an invalid row is ignored and cannot lead to a wrong kernel, because a configuration
// is checked again before it is used.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/configure/choose_config.h"

namespace coda::gpu {

// What determines a kernel's best configuration. Spaces are sorted by name, then by decreasing
// size, so that their order in the program does not matter.
struct KernelClass {
  std::string name;                   // layout and epilogue of each space
  std::vector<SpaceExtents> extents;  // for each space
  // The name without arithmetic and row sums, which a GEMM with many rows hides; empty if a row
  // reduction is more than a sum.
  std::string plain_name = {};
  std::vector<size_t> spaces = {};  // the kernel's spaces, in sorted order
};
KernelClass class_of(const ProgramSizes& sizes, const program::TileMap& map,
                     const KernelSpaces& kernel);
std::string text(const std::vector<SpaceExtents>& extents);  // "16384x4096x4096+..."

struct TimedChoice {
  GemmConfig choice;
  double microseconds = 0;
};

struct TunedRow {
  std::vector<SpaceExtents> extents;
  std::vector<TimedChoice> choices;  // fastest first, never empty
};

class TunedRows {
 public:
  TunedRows() = default;
  // The rows may be of any target. Skips empty lines and lines that start with '#'. `left_out`
  // receives the lines that could not be read completely.
  explicit TunedRows(std::string_view text, std::vector<std::string>* left_out = nullptr);

  // Replaces the row of the same class and extents.
  void set(const KernelClass& kernel, std::vector<TimedChoice> choices);
  void add(const TunedRows& others);

  // The nearest row of the class by the logarithms of all extents, if it is near enough. The
  // earliest of equally near rows. If the class has no rows, uses those of the plain class.
  const TunedRow* nearest(const KernelClass& kernel) const;

  size_t size() const;
  std::string text() const;  // sorted by class, then in insertion order

 private:
  std::map<std::string, std::vector<TunedRow>, std::less<>> rows_;  // by class
};

}  // namespace coda::gpu
