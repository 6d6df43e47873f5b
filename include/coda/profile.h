// SPDX-License-Identifier: Apache-2.0
// What a training step does when: Trainer::profile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "coda/api.h"

namespace CODA_API coda {

// What is on one track never overlaps.
enum class ProfileTrack : uint8_t {
  compute,    // programs and calls of the plan and of the update, by their names
  transfers,  // copies between the host and a GPU, and what processes exchange
  host,       // what the host does meanwhile
};

struct ProfileEvent {
  std::string name;
  ProfileTrack track = ProfileTrack::compute;
  double start = 0;  // seconds from the step's start
  double seconds = 0;
};

// As chrome://tracing and ui.perfetto.dev read it. `title` names the process.
std::string chrome_trace(const std::vector<ProfileEvent>& events, const std::string& title);
// The same as a file, written as a whole or not at all.
void write_chrome_trace(const std::filesystem::path& file, const std::vector<ProfileEvent>& events,
                        const std::string& title);

}  // namespace CODA_API coda
