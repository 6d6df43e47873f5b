// SPDX-License-Identifier: Apache-2.0
// Runs one lowered tile space: packs B, then computes tiles (GEMM and epilogue) on all threads.
#pragma once

#include <span>
#include <vector>

#include "base/rounding.h"
#include "cpu/cpu_backend.h"
#include "cpu/epilogue.h"
#include "cpu/spread_lines.h"
#include "cpu/tile_program.h"
#include "cpu/vector_program.h"
#include "cpu/workspace.h"

namespace coda::cpu {

// The shape of tiles and strips, which does not affect results.
struct TileShape {
  int64_t rows = 0;        // per tile: a multiple of 64 if columns are summed
  int64_t cols = 0;        // base columns of a tile: a multiple of 64
  int64_t stride = 0;      // floats between the rows of a plane
  int64_t strip_rows = 0;  // rows of a strip, divides 64
};

TileShape choose_tile_shape(const TileProgram& program, int strip_planes, const CpuOptions& options,
                            int threads);

class TileSpaceKernel {
 public:
  TileSpaceKernel(TileProgram program, VectorProgram vectors, const CpuOptions& options,
                  int threads);

  int64_t scratch_bytes() const { return pieces_.size(); }
  // Whether this space can use the B that `other` has packed, if it runs next with the same memory.
  bool shares_b(const TileSpaceKernel& other) const;
  // b_is_packed: the previous space has left its packed B in `scratch`.
  void run(std::span<const TensorView> tensors, char* scratch, bool b_is_packed) const;

 private:
  // Offsets in a thread's scratch memory.
  struct ThreadOffsets {
    int64_t a = 0;
    int64_t accumulators = 0;
    int64_t strips = 0;
    int64_t states = 0;
    int64_t bytes = 0;
  };

  // A tensor that tiles load or store in place, so that it can be prefetched during the GEMM. The
  // tensor's columns for the base columns n0 and following start at n0 * scale + first.
  struct Stream {
    int tensor = -1;
    int64_t scale = 1;
    int64_t first = 0;
    bool is_stored = false;
  };

  // Kernels of one A operand: [tile rows full or last][block of k full or last][accumulate].
  struct Kernels {
    bool a_by_columns = false;
    TileKernel kernel[2][2][2];
  };

  int64_t row_blocks() const { return ceil_div(program_.rows, shape_.rows); }
  int64_t column_blocks() const { return ceil_div(program_.cols, shape_.cols); }

  void find_streams();
  // The panels of the tile's columns from `panel` on, for one B operand and one block of k.
  const char* panels_of(const char* scratch, int b, int64_t panel, int64_t k0) const;
  void check_row_indices(std::span<const TensorView> tensors) const;
  void pack_b(std::span<const TensorView> tensors, char* scratch, int64_t item) const;
  // Packs one row block of all A operands, one operand after another from `dst` on.
  void pack_a(std::span<const TensorView> tensors, char* dst, int64_t row_block) const;
  // Whether the kernel reads this operand where it lies.
  bool is_in_place(const AOperand& a, const TensorView& view) const;
  // A tile's rows of an operand, in place or packed.
  struct RowsOfA {
    const char* first = nullptr;  // of the first block of k
    int64_t bytes_of_k = 0;       // from one k to the next
    bool is_in_place = false;
    int64_t step = 0;  // TileKernel::a_step, in place
  };
  RowsOfA rows_of_a(const TileContext& tile, const char* packed_a, int index) const;
  void multiply(const TileContext& tile, const char* packed_a) const;
  // The same if B is not packed in advance.
  void pack_and_multiply(const TileContext& tile, const char* packed_a) const;
  // What will be packed after this tile's row block, if the next block follows.
  SpreadLines packed_next(const TileContext& tile) const;
  // Prefetches part `part` of `parts` of what the tile's epilogue will access into L2.
  void prefetch(const TileContext& tile, int64_t part, int64_t parts) const;

  TileProgram program_;
  int strip_planes_;
  VectorProgram vectors_;
  TileShape shape_;
  int threads_;
  GemmLibrary library_;
  bool packs_for_itself_;  // the task of a tile packs its own panels of B
  ScratchPieces pieces_;
  std::vector<int64_t> b_offsets_;
  std::vector<int64_t> b_items_;    // first packing item of each B operand, and the end
  std::vector<int64_t> a_offsets_;  // of each A operand in a packed row block
  int64_t a_block_bytes_ = 0;
  std::vector<Stream> streams_;
  int64_t kernel_calls_ = 0;  // of a full tile
  int64_t threads_offset_ = 0;
  ThreadOffsets thread_;
  std::vector<Kernels> kernels_;  // of each A operand
};

}  // namespace coda::cpu
