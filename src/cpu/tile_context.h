// SPDX-License-Identifier: Apache-2.0
// One tile: its position and its memory.
#pragma once

#include <span>

#include "coda/tensor.h"
#include "cpu/vector_program.h"

namespace coda::cpu {

struct TileContext {
  std::span<const TensorView> tensors;
  const VectorProgram* vectors = nullptr;
  const char* scratch = nullptr;  // of the vectors
  int64_t total_rows = 0;         // of the tile space
  int64_t m0 = 0;
  int64_t rows = 0;
  int64_t n0 = 0;
  int64_t cols = 0;
  int64_t stride = 0;      // floats between rows of a plane
  int64_t plane_rows = 0;  // rows of an accumulator
  int64_t strip_rows = 0;  // divides 64
  float* accumulators = nullptr;
  float* strips = nullptr;
  float* states = nullptr;  // kMostPartialLanes for each column partial

  // Columns of the operation's planes in this tile, and the first of them.
  int64_t width(const TileOp& op) const {
    if (!op.is_narrow) return cols;
    return op.span > 0 ? cols / op.span : op.groups;
  }
  int64_t first_column(const TileOp& op) const {
    if (!op.is_narrow) return n0;
    return op.span > 0 ? n0 / op.span : 0;
  }
};

}  // namespace coda::cpu
