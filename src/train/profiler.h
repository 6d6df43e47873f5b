// SPDX-License-Identifier: Apache-2.0
// Records a timeline of a training step. On a GPU it uses events in the stream, so that nothing
// waits and gaps between kernels are visible; on the host it uses the host's clock.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "coda/backend.h"
#include "coda/profile.h"

namespace coda {

class Profiler {
 public:
  // Time starts here. Waits for earlier work of the backend.
  explicit Profiler(Backend& backend);

  // Runs and records the work. The host's track uses the host's clock.
  void run(ProfileTrack track, const std::string& name, const std::function<void()>& work);
  // All recorded events, by track and then by time; waits for the backend.
  std::vector<ProfileEvent> events() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Noted {
    std::string name;
    ProfileTrack track;
    std::function<double()> from, to;
  };
  std::function<double()> host_now() const;

  Backend& backend_;
  Clock::time_point start_;
  std::function<double()> first_;  // of the backend
  std::vector<Noted> noted_;
};

// Without a profiler, only runs the work.
void run_profiled(Profiler* profiler, ProfileTrack track, const std::string& name,
                  const std::function<void()>& work);

}  // namespace coda
