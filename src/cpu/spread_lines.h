// SPDX-License-Identifier: Apache-2.0
// Spreads prefetches of a large area over many GEMM calls: the row block of A that will be packed
// after the current one. Without prefetching, or with all prefetches at once, each of its distant
// rows would cause a wait. It only affects speed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rounding.h"
#include "cpu/tile_gemm.h"

namespace coda::cpu {

class SpreadLines {
 public:
  // `rows` rows of `bytes` bytes, `stride` bytes apart.
  void add(const char* data, int64_t rows, int64_t bytes, int64_t stride) {
    const int64_t lines = ceil_div(bytes, kLine);
    const int64_t pieces = lines * ceil_div(rows, kRows);
    blocks_.push_back({data, rows, stride, lines, pieces});
    pieces_ += pieces;
  }

  // Call `call` of `calls` asks for its share.
  void ask(int64_t call, int64_t calls, Ahead& ahead) const {
    int64_t piece = pieces_ * call / calls;
    const int64_t end = pieces_ * (call + 1) / calls;
    for (Lines& free : ahead.lines) {
      if (free.count > 0) continue;
      if (piece == end) return;
      free = lines_of(piece++);
    }
  }

 private:
  static constexpr int64_t kRows = 512;  // of a piece, which is one line of each of them

  struct Block {
    const char* data = nullptr;
    int64_t rows = 0;
    int64_t stride = 0;
    int64_t lines = 0;  // of a row
    int64_t pieces = 0;
  };

  Lines lines_of(int64_t piece) const {
    for (const Block& b : blocks_) {
      if (piece >= b.pieces) {
        piece -= b.pieces;
        continue;
      }
      const int64_t row = piece / b.lines * kRows;
      return {b.data + row * b.stride + piece % b.lines * kLine, std::min(kRows, b.rows - row),
              b.stride};
    }
    return {};
  }

  std::vector<Block> blocks_;
  int64_t pieces_ = 0;
};

}  // namespace coda::cpu
