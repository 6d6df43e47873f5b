// SPDX-License-Identifier: Apache-2.0
// device/sm90/ptx/tma_matrices.cuh on a CPU.
#pragma once

#include "device/sm90/ptx/tma.cuh"

namespace coda::device {

inline void tma_load_of_matrix(SharedAddress destination, const TensorMap* map, u32 inner,
                               u32 outer, u32 matrix, SharedAddress barrier) {
  host_loads().push_back({barrier, [=] {
                            HostMap one = host_map(map);
                            one.rows = one.matrix_rows;
                            one.first += matrix * one.rows * one.stride * one.bytes;
                            visit_box(one, inner, outer, destination,
                                      [&](const u8* memory, u8* shared) {
                                        std::memset(shared, 0, one.bytes);
                                        if (memory != nullptr)
                                          std::memcpy(shared, memory, one.bytes);
                                      });
                            return one.box_rows * one.box_columns * one.bytes;
                          }});
  ++host_threads->steps;
}

}  // namespace coda::device
