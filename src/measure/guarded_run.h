// SPDX-License-Identifier: Apache-2.0
// One program on one backend between guards: every tensor's image is filled with NaN outside it, in
// the gaps between rows and where nothing is given, so that reading or writing outside, or not
// writing at all, shows.
#pragma once

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "coda/backend.h"
#include "program/evaluate.h"

namespace coda::measure {

using program::TensorValues;

struct GuardedRun {
  TensorValues results;                                // of what the program stores
  std::map<std::string, std::vector<std::byte>> bits;  // the same, with guards
  std::vector<std::string> overrun;                    // tensors beside which memory was written
};
// Rows are apart, on a device by multiples of 16 bytes. `poison` is around the tensors and where
// nothing is given; of i32 the smallest number.
GuardedRun run_between_guards(Backend& backend, const Program& program, const DimValues& sizes,
                              const TensorValues& inputs,
                              double poison = std::numeric_limits<double>::quiet_NaN());

}  // namespace coda::measure
