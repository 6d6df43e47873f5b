// SPDX-License-Identifier: Apache-2.0
// The caller's options for the kernels of a program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/config.cuh"
#include "gpu/targets/targets.h"

namespace coda::gpu {

class TunedRows;  // configure/tuned_rows.h

struct LowerOptions {
  // Elements between the starts of two rows of each tensor; empty: dense.
  std::vector<int64_t> row_strides = {};
  bool owns_padding = false;  // the gaps between those rows may be overwritten: nobody reads them
  const Target* target = &chosen_target();
  uint32_t multiprocessors = target->multiprocessors;
  // Tile, cluster, stages and schedule of the GEMMs, one of legal_choices() (lower.h). Layout and
  // element type come from the program. Empty: see chosen_config.h.
  std::optional<device::GemmConfig> choice{};
  // With 8-bit operands, leave long sums to the tensor cores too, which keep about 14 bits; short
  // sums always are.
  bool fast_accumulation = false;
  std::shared_ptr<const TunedRows> tuned = nullptr;  // measurements on this machine
  bool uses_table = true;                            // use the shipped tables
  bool is_h100 = false;                              // prefer the measurements of an H100
};

}  // namespace coda::gpu
