// SPDX-License-Identifier: Apache-2.0
// An emitted kernel: its text and how to fill its single argument. Plain data that needs no GPU.
// Invariant: the text depends only on the program's structure and the tile configuration, so that
// one cubin serves all batch sizes. All sizes are among the numbers of the argument.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/dtype.h"

namespace coda::gpu {

// A rectangle of a program's tensor, as TMA sees it. Elements of a box outside the rectangle are
// loaded as zero and never stored, so a view of half a tensor (one member of concatenated pairs)
// never touches the other half.
struct TensorMapSpec {
  int tensor = -1;  // index into Program::tensors, then KernelLaunch::scratch
  int64_t row_offset = 0;
  int64_t column_offset = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  // If not 0, the rectangle is a stack of matrices of so many rows, and boxes have a third
  // coordinate, the matrix.
  int64_t matrix_rows = 0;
  uint32_t box_rows = 0;
  uint32_t box_columns = 0;  // at most 128 bytes; also determines the swizzle (tensor_map.h)

  friend bool operator==(const TensorMapSpec&, const TensorMapSpec&) = default;
};

// A matrix that only the launches of one program exchange. Rows start at multiples of 16 bytes if
// the first one does.
struct ScratchTensor {
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;  // elements

  friend bool operator==(const ScratchTensor&, const ScratchTensor&) = default;
};

// A pointer of a launch that is not a tensor but a u32 counter that distributes tiles
// (device/sm90/tile_scheduler.cuh). The counter is 0 between launches.
inline constexpr int kTileCounter = -1;

// The kernel's single argument, in this order and without gaps:
//   TensorMap maps[max(1, maps)]        128 bytes each
//   u64 pointers[max(1, pointers)]      device addresses of whole tensors
//   u32 numbers[max(1, numbers)]        sizes, pitches, tile orders
// This is device/arguments.cuh's KernelArguments<maps, pointers, numbers>.
struct KernelLaunch {
  std::string function;  // the kernel's `extern "C"` name in the text
  std::string source;    // CUDA C++; includes only device/*.cuh
  std::vector<TensorMapSpec> maps;
  std::vector<int> pointers;      // tensors, indexed as in TensorMapSpec, or kTileCounter
  std::vector<uint32_t> numbers;  // for the sizes of this lowering
  uint32_t grid = 1;              // CTAs
  uint32_t cluster = 1;
  uint32_t threads = 1;
  uint32_t shared_bytes = 0;  // dynamic shared memory
  // The kernel may start while the previous one ends: it waits before it accesses memory
  // (device/ptx/dependent_launch.cuh).
  bool waits_for_predecessor = false;
  // Intermediate results between the launches of a split program: the same list in each launch. An
  // earlier launch writes what a later one reads.
  std::vector<ScratchTensor> scratch;
  // For people: why the program was split, or that every configuration spills.
  std::string note;
};

}  // namespace coda::gpu
