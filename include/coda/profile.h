// SPDX-License-Identifier: Apache-2.0
// The timeline of a training step (Trainer::profile).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "coda/api.h"

namespace CODA_API coda {

// Events of one track never overlap.
enum class ProfileTrack : uint8_t {
  compute,    // programs and calls of the plan and the update, by name
  transfers,  // copies between host and GPU, and exchanges between processes
  host,       // work of the host
};

struct ProfileEvent {
  std::string name;
  ProfileTrack track = ProfileTrack::compute;
  double start = 0;  // seconds from the step's start
  double seconds = 0;
};

// JSON for chrome://tracing and ui.perfetto.dev. `title` names the process.
std::string chrome_trace(const std::vector<ProfileEvent>& events, const std::string& title);
// Writes the same JSON to a file atomically.
void write_chrome_trace(const std::filesystem::path& file, const std::vector<ProfileEvent>& events,
                        const std::string& title);

}  // namespace CODA_API coda
