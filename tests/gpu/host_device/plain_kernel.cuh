// SPDX-License-Identifier: Apache-2.0
// What stands in front of an emitted kernel without tensor cores: words, and what most of them
// include, so that the compiler reads it once for all kernels (settings.cmake).
#pragma once

#include "cuda_words.cuh"
#define __shared__ static

#include "device/arguments.cuh"
#include "device/kernels/finalizer.cuh"
#include "device/kernels/tile_kernel.cuh"
