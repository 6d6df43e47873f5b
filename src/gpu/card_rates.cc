// SPDX-License-Identifier: Apache-2.0
// The rates of cards for the cost model of plans.
#include "coda/gpu_card.h"
#include "coda/kernels.h"

namespace coda {

Rates rates_of(const GpuCard& card) {
  const Rates measured = h200_rates();
  if (card.major == 9) return measured;
  const GpuCard& h200 = gpu_card("H200");
  return {.flops_per_second = card.flops * (measured.flops_per_second / h200.flops),
          .bytes_per_second =
              card.bytes_per_second * (measured.bytes_per_second / h200.bytes_per_second),
          .launch_seconds = measured.launch_seconds};
}

std::string prediction_note(const GpuCard& card) {
  if (card.major == 9) return "times are predicted from rates measured on an H200";
  return "times are predicted for the " + std::string(card.name) +
         " from its data sheet, not measured" +
         (card.major == 10 ? "; GEMMs take longer, because no kernel uses tcgen05" : "");
}

KernelOptions kernel_options(const GpuCard& card) {
  return {.multiprocessors = static_cast<uint32_t>(card.multiprocessors),
          .device = "NVIDIA " + std::string(card.name),
          .major = card.major,
          .minor = card.minor};
}

}  // namespace coda
