// SPDX-License-Identifier: Apache-2.0
// The machine's rates for the cost model. A backend has its own (Backend::rates). The functions
// below are for planning on a different machine than the one that runs the plan.
#pragma once

#include "coda/api.h"

namespace CODA_API coda {

struct Rates {
  double flops_per_second = 2.5e11;
  double bytes_per_second = 3e10;
  double launch_seconds = 2e-6;  // of a program without a GEMM to hide the launch
};
Rates cpu_rates();   // two cores with AVX-512, measured
Rates h200_rates();  // bf16, measured

}  // namespace CODA_API coda
