// SPDX-License-Identifier: Apache-2.0
// The interpreter of a tile's epilogue: operations one at a time over row strips that fit the
// first-level cache.
#pragma once

#include <span>

#include "cpu/tile_program.h"
#include "cpu/vector_program.h"

namespace coda::cpu {

// One tile: where it lies, and its memory.
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
  float* states = nullptr;  // two lanes for each column partial
};

void run_epilogue(const std::vector<TileOp>& ops, const TileContext& tile);

}  // namespace coda::cpu
