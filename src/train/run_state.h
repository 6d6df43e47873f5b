// SPDX-License-Identifier: Apache-2.0
// The run_state.json of a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coda/run.h"

namespace coda {

// JSON. Losses must be finite.
std::string run_state_text(const RunState& state);

// `source`: the name of the text in messages, a file's path. Throws Error.
RunState parse_run_state(std::string_view text, const std::string& source);

}  // namespace coda
