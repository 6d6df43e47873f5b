// SPDX-License-Identifier: Apache-2.0
// What the cost model knows of a machine. A backend has its own (Backend::rates); the functions
// are for plans that are made on another machine than they run on.
#pragma once

#include "coda/api.h"

namespace CODA_API coda {

struct Rates {
  double flops_per_second = 2.5e11;
  double bytes_per_second = 3e10;
  double launch_seconds = 2e-6;  // of a program that has no GEMM to hide it
};
Rates cpu_rates();   // two cores with AVX-512, measured
Rates h200_rates();  // bf16, measured

}  // namespace CODA_API coda
