// SPDX-License-Identifier: Apache-2.0
// One program on one backend between guards: every tensor's image is filled with NaN outside it, in
// the gaps between rows and where nothing is given, so that reading or writing outside, or not
// writing at all, shows.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "coda/backend.h"
#include "program/evaluate.h"

namespace coda::tools {

using program::TensorValues;

// Numbers that the tensors' types have, from -1 to 1; indices inside what they index, of selected
// columns a few outside.
TensorValues random_inputs(const Program& program, const DimValues& sizes, uint64_t seed);

// A way to run programs. What `memory` gives is zeroed.
struct Runner {
  Backend* backend = nullptr;
  // The image of a tensor in the memory that the backend's kernels use, and back.
  std::function<BackendMemory(const std::vector<std::byte>& image)> upload;
  std::function<void(const BackendMemory& memory, std::vector<std::byte>& image)> download;
};
Runner runner_on_host(Backend& backend);

struct CheckedRun {
  TensorValues results;                                // of what the program stores
  std::map<std::string, std::vector<std::byte>> bits;  // the same, with guards
  std::string outside;  // what was written that may not be; empty: nothing
};
// Rows start at multiples of `row_multiple` elements, at least one behind the end of the former.
CheckedRun run_between_guards(const Runner& runner, const Program& program, const DimValues& sizes,
                              const TensorValues& inputs, int64_t row_multiple);

}  // namespace coda::tools
