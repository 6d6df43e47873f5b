// SPDX-License-Identifier: Apache-2.0
// Measured times of configurations, as text: one row a kernel at one size. The table that is
// shipped (tuned_rows.txt) and the file that `coda tune` writes have this one format.
//   class | extents of its spaces | configuration microseconds, fastest first
//   tn p1 l1 s2 w1 rs | 16384x4096x4096 | 128x128p12s6 831.2 192x128p12s5 840.0
// Invariant: what cannot be read is left out, and never makes a wrong kernel: what a configuration
// is taken for is checked again.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/configure/choose_config.h"

namespace coda::gpu {

// What tells one kernel from another as far as its configuration is concerned. Its spaces are in
// one order, whichever the program has them in: by their names, then the largest first.
struct KernelClass {
  std::string name;                   // layout, and how each space's epilogue is
  std::vector<SpaceExtents> extents;  // of each space
  // Its name without arithmetic and sums along rows, which a product over many rows hides; empty
  // where a row is reduced to more than a sum.
  std::string plain_name = {};
  std::vector<size_t> spaces = {};  // of the kernel, in that order
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
  // Lines that are empty or start with '#' are skipped. `left_out` gets the lines of which not all
  // could be read.
  explicit TunedRows(std::string_view text, std::vector<std::string>* left_out = nullptr);

  // Replaces the row of the same class and extents.
  void set(const KernelClass& kernel, std::vector<TimedChoice> choices);
  void add(const TunedRows& others);

  // The row of the class that is nearest, if its sizes are near at all: by the logarithms of all
  // extents. Among equals the first that was set. Of a class without rows, that of the plain class.
  const TunedRow* nearest(const KernelClass& kernel) const;

  size_t size() const;
  std::string text() const;  // sorted by class, then as they were set

 private:
  std::map<std::string, std::vector<TunedRow>, std::less<>> rows_;  // by class
};

}  // namespace coda::gpu
