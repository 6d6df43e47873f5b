// SPDX-License-Identifier: Apache-2.0
// Which rows and columns of a tile a thread holds, as text of emitted kernels. A thread's fragment
// is four pairs of neighbouring columns: two rows ("sides") by two pairs of columns ("halves").
// Rows of one tile that are a block apart belong to the same thread. `at` is the kernel's
// FragmentPosition: the thread's first row and column of the fragment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coda::gpu {

struct FragmentMap {
  uint32_t rows_apart = 0;        // a thread's two rows of a fragment
  uint32_t columns_apart = 0;     // the first columns of its two halves
  std::string_view block_rows{};  // between a thread's rows of one block and of the next
  std::string_view blocks{};      // how many blocks of rows a thread has

  // Of the pair that the loop variable `pair` counts, 0 to 3.
  static std::string side() { return "pair % 2"; }
  static std::string half() { return "pair / 2"; }

  std::string row(const std::string& side) const {
    return "at.row + " + std::to_string(rows_apart) + " * " + side;
  }
  std::string row_of_pair() const { return row("(" + side() + ")"); }
  // `offset`: added to the fragment's first column, " + 16" or nothing.
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
