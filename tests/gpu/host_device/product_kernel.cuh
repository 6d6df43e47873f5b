// SPDX-License-Identifier: Apache-2.0
// What stands in front of an emitted kernel with a product: words, and what its text includes, so
// that the compiler reads it once for all kernels (settings.cmake). Shared memory is barrier.cuh's.
#pragma once

#include "cuda_words.cuh"
#define __shared__

#include "device/arguments.cuh"
#include "device/epilogue/fragment_values.cuh"
#include "device/sm90/program_kernel.cuh"
