// SPDX-License-Identifier: Apache-2.0
// What the caller decides of a program's kernels.
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
  std::vector<int64_t> row_strides;
  bool owns_padding = false;  // what lies between those rows may be written: nobody reads it
  const Target* target = &chosen_target();
  uint32_t multiprocessors = target->multiprocessors;
  // Tile, cluster, stages and schedule of the products, one of legal_choices() (lower.h);
  // the program says its layout and element type. Empty: as chosen_config.h says.
  std::optional<device::GemmConfig> choice;
  // Of 8-bit operands all sums are left to the tensor cores, which keep about 14 bits, not only
  // short ones.
  bool fast_accumulation = false;
  std::shared_ptr<const TunedRows> tuned;  // what was measured on this machine
  bool uses_table = true;                  // the tables that are shipped
  bool is_h100 = false;                    // what an H100 was measured at goes first
};

}  // namespace coda::gpu
