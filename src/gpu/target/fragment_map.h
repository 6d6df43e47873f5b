// SPDX-License-Identifier: Apache-2.0
// The rows and columns of a tile that a thread holds, as expressions in emitted kernels. A thread's
// fragment is four pairs of neighbouring columns: two rows ("sides") by two pairs of columns
// ("halves"). A thread holds the same rows in every block of rows of a tile. `at` is the kernel's
// FragmentPosition: the thread's first row and column of the fragment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coda::gpu {

struct FragmentMap {
  uint32_t rows_apart = 0;        // distance between the two rows of a fragment
  uint32_t columns_apart = 0;     // distance between the first columns of the two halves
  std::string_view block_rows{};  // distance between a thread's rows of two blocks
  std::string_view blocks{};      // number of blocks of rows that a thread has

  // The side and the half of the pair that the loop variable `pair` (0 to 3) counts.
  static std::string side() { return "pair % 2"; }
  static std::string half() { return "pair / 2"; }

  std::string row(const std::string& side) const {
    return "at.row + " + std::to_string(rows_apart) + " * " + side;
  }
  std::string row_of_pair() const { return row("(" + side() + ")"); }
  // `offset`: an expression added to the first column, such as " + 16"; may be empty.
  std::string column(const std::string& half, const std::string& offset = "") const {
    return "at.column" + offset + " + " + std::to_string(columns_apart) + " * " + half;
  }
  std::string column_of_pair(const std::string& offset = "") const {
    return column("(" + half() + ")", offset);
  }
  std::string second_row() const { return "(at.row + " + std::to_string(rows_apart) + ")"; }
  std::string second_column() const {
    return "(at.column + " + std::to_string(columns_apart) + ")";
  }
  std::string row_of_block(const std::string& block, const std::string& side) const {
    return "at.row + " + block + " * " + std::string(block_rows) + " + " +
           std::to_string(rows_apart) + " * " + side;
  }
};

}  // namespace coda::gpu
