// SPDX-License-Identifier: Apache-2.0
// TMA loads from a stack of matrices of equal size, as the sequences of a batch. A box does not
// reach into the next matrix: what is behind a matrix's last row is loaded as zero.
#pragma once

#include "device/sm90/ptx/tma.cuh"

namespace coda::device {

__device__ __forceinline__ void tma_load_of_matrix(SharedAddress destination, const TensorMap* map,
                                                   u32 inner, u32 outer, u32 matrix,
                                                   SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(destination.byte),
      "l"(map), "r"(inner), "r"(outer), "r"(matrix), "r"(barrier.byte)
      : "memory");
}

}  // namespace coda::device
