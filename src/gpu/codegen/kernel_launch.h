// SPDX-License-Identifier: Apache-2.0
// What the emitter hands to the builder and the launcher: a kernel as text, and how its one flat
// argument is filled. Plain data, made without a GPU.
// Invariant: the text does not depend on sizes, only on the program's structure and the tile
// configuration, so that one cubin serves every batch; all sizes are among the numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/dtype.h"

namespace coda::gpu {

// A rectangle of a program's tensor as the bulk copy engine sees it. What a box covers outside the
// rectangle is loaded as zero and never stored; so a view of half a tensor (one member of
// concatenated pairs) never touches the other half.
struct TensorMapSpec {
  int tensor = -1;  // index into Program::tensors, then KernelLaunch::scratch
  int64_t row_offset = 0;
  int64_t column_offset = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  uint32_t box_rows = 0;
  uint32_t box_columns = 0;  // 128 bytes of elements at most; the swizzle follows (tensor_map.h)

  friend bool operator==(const TensorMapSpec&, const TensorMapSpec&) = default;
};

// A matrix between the launches of one program, which nobody else sees; rows start at multiples of
// 16 bytes if the first does.
struct ScratchTensor {
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;  // elements

  friend bool operator==(const ScratchTensor&, const ScratchTensor&) = default;
};

// An entry among a launch's pointers that is no tensor: a u32 counter that deals out tiles
// (device/sm90/tile_scheduler.cuh). It is 0 between launches.
inline constexpr int kTileCounter = -1;

// The kernel takes one argument, in this order and without gaps:
//   TensorMap maps[max(1, maps)]        128 bytes each
//   u64 pointers[max(1, pointers)]      device addresses of whole tensors
//   u32 numbers[max(1, numbers)]        sizes, pitches, tile orders
// which is device/arguments.cuh's KernelArguments<maps, pointers, numbers>.
struct KernelLaunch {
  std::string function;  // the kernel's name in the text, `extern "C"`
  std::string source;    // CUDA C++; includes device/*.cuh and nothing else
  std::vector<TensorMapSpec> maps;
  std::vector<int> pointers;      // tensors, by index as TensorMapSpec's; or kTileCounter
  std::vector<uint32_t> numbers;  // for the sizes the program was lowered for
  uint32_t grid = 1;              // CTAs
  uint32_t cluster = 1;
  uint32_t threads = 1;
  uint32_t shared_bytes = 0;  // dynamic
  // It may start while the kernel before it ends: it waits before it touches memory, as
  // device/ptx/dependent_launch.cuh says.
  bool waits_for_predecessor = false;
  // What the launches of a program that was split pass on: the same in all of them. An earlier one
  // writes what a later one reads.
  std::vector<ScratchTensor> scratch;
  // For people: that and why the program was split, if it was, and that every configuration spills.
  std::string note;
};

}  // namespace coda::gpu
