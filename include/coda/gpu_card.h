// SPDX-License-Identifier: Apache-2.0
// NVIDIA's GPUs by name, with the figures of their data sheets: for plans, kernels and predictions
// on a machine without the card.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "coda/api.h"
#include "coda/rates.h"

namespace CODA_API coda {

// Rates are dense (without sparsity) peaks with accumulation in fp32, as the kernels accumulate.
struct GpuCard {
  std::string_view name;  // "RTX 4090"
  int major = 0;          // compute capability
  int minor = 0;
  int multiprocessors = 0;
  int boost_mhz = 0;            // at which the rates hold; 0: not published
  double flops = 0;             // of bf16 and fp16, per second
  double flops_of_8_bits = 0;   // of 8-bit floats, per second; 0: the card has none
  double bytes_per_second = 0;  // of memory
  int memory_gb = 0;            // of the largest version of this name
  int l2_mb = 0;                // 0: not published
  int shared_kb = 0;  // shared memory of a multiprocessor in KiB; a block may have 1 KiB less
};

// All known cards. The first one of a compute capability stands for cards that are not known.
std::span<const GpuCard> gpu_cards();

// The card of this name, "RTX 4090" or "rtx4090", or as the driver names it. Throws Error with the
// nearest names.
const GpuCard& gpu_card(std::string_view name);
// The card that the driver names so, "NVIDIA GeForce RTX 4090"; null: not known.
const GpuCard* find_gpu_card(std::string_view device);

// The rates by which plans for this card are made (Backend::rates()) and times are predicted. On
// Hopper they are those measured on an H200. For other cards they are predictions: the peaks of the
// data sheet times the shares of both peaks that the H200 was measured to reach.
Rates rates_of(const GpuCard& card);
// "times are predicted for the RTX 4090 from its data sheet, not measured".
std::string prediction_note(const GpuCard& card);

}  // namespace CODA_API coda
