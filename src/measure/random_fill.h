// SPDX-License-Identifier: Apache-2.0
// Fills tensors with random numbers in place. Timings use normal deviates instead of zeros, because
// the values that a kernel multiplies determine its power.
#pragma once

#include <cstdint>

#include "coda/tensor.h"
#include "gpu/launch/launched_kernel.h"

namespace coda::measure {

// Normal deviates times `scale`; of an i32 tensor whole numbers from 0 to `limit` - 1. Enqueued on
// the state's stream.
void fill_random(gpu::GpuState& state, const TensorView& view, uint64_t seed, float scale = 1.0F,
                 uint32_t limit = 1);

// The same of a tensor in the host's memory, other numbers.
void fill_random_on_host(const TensorView& view, uint64_t seed, float scale = 1.0F,
                         uint32_t limit = 1);

}  // namespace coda::measure
