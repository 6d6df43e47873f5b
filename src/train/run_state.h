// SPDX-License-Identifier: Apache-2.0
// What a run must remember besides its weights and moments to go on as if it had not stopped. It is
// run_state.json of a checkpoint (see checkpoint.h); numbers survive to the bit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "train/loss_curve.h"

namespace coda::train {

struct RunState {
  int64_t step = 0;  // steps done; with `seed` it says which data comes next
  uint64_t seed = 0;
  std::map<std::string, std::string> options;  // as the run was started with, by name
  std::vector<LossPoint> train_losses;
  std::vector<LossPoint> held_out_losses;

  friend bool operator==(const RunState&, const RunState&) = default;
};

// JSON. Losses must be finite.
std::string run_state_text(const RunState& state);

// `source` is what messages call the text: a file's path. Throws Error.
RunState parse_run_state(std::string_view text, const std::string& source);

}  // namespace coda::train
