// SPDX-License-Identifier: Apache-2.0
// Packs GEMM operands for the tile kernels: A into row-major blocks of k, B into panels of 64
// columns. Ragged ends are padded with zeros, and nothing outside an operand is read. Other types
// are converted to the packed type.
#pragma once

#include <cstdint>

#include "base/rounding.h"
#include "coda/program.h"
#include "coda/tensor.h"

namespace coda::cpu {

// k of one packed block: a block of A, and of a panel of B, is contiguous. Each block is summed
// separately before it is added to the total. For fp32, where a long sum causes as much rounding
// error as everything else together, blocks are short (docs/numerics.md) and of nearly equal
// length.
inline constexpr int64_t kMaxDepth = 512;
constexpr int64_t block_depth(DType packed, int64_t k) {
  if (packed == DType::bf16) return kMaxDepth;
  const int64_t blocks = ceil_div(k, 128);
  return blocks == 0 ? 8 : round_up(ceil_div(k, blocks), 8);
}

// k after packing: even for bf16, whose panels hold pairs of k.
constexpr int64_t packed_depth(DType packed, int64_t k) {
  return packed == DType::bf16 ? round_up(k, 2) : k;
}

// An operand in memory. k_rows: k runs along its rows (a transposed A, a plain B), else along its
// columns.
struct GemmOperand {
  TensorView view;
  bool k_along_rows = false;
  const TensorView* scales = nullptr;  // of 8 bits with k along columns: see GemmSegment
};

// Packs rows m0 .. m0 + rows of A, k from k0 to k0 + k (k0 even), to dst[rows][packed_depth(k)]. An
// operand whose k runs along rows may also be packed by columns, which is only a copy: f32
// dst[k][rows], bf16 dst[packed_depth(k) / 2][rows][2].
void pack_a_block_by_columns(DType packed, const GemmOperand& a, int64_t m0, int64_t rows,
                             int64_t k0, int64_t k, void* dst);
void pack_a_block(DType packed, const GemmOperand& a, int64_t m0, int64_t rows, int64_t k0,
                  int64_t k, void* dst);

// Packs the columns listed in `columns` (64 entries per panel, -1: zeros) of B, k from k0 to k0 + k
// (k0 even), into panels that are `panel_bytes` apart: f32 dst[k][64], bf16 dst[packed_depth(k) /
// 2][64][2]. If k runs along rows, each visit of a row serves all panels.
void pack_b_blocks(DType packed, const GemmOperand& b, const int64_t* columns, int64_t panels,
                   int64_t k0, int64_t k, void* dst, int64_t panel_bytes);
inline void pack_b_block(DType packed, const GemmOperand& b, const int64_t* columns, int64_t k0,
                         int64_t k, void* dst) {
  pack_b_blocks(packed, b, columns, 1, k0, k, dst, 0);
}

}  // namespace coda::cpu
