// SPDX-License-Identifier: Apache-2.0
// CUDA's words that a C++ compiler does not know; what __shared__ means depends on the kernel.
#pragma once

#define __global__
#define __grid_constant__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
