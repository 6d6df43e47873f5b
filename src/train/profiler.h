// SPDX-License-Identifier: Apache-2.0
// Times what a step does. On a GPU points in the stream are timed, so that nothing waits and the
// gaps between kernels are seen; on the host its clock is read.
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
  // From here on times count. Waits for what the backend was given before.
  explicit Profiler(Backend& backend);

  // Does the work and notes it. On the host's track it is timed by the host's clock.
  void run(ProfileTrack track, const std::string& name, const std::function<void()>& work);
  // All that was noted, by track and then by time; waits for the backend.
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

// The work alone where there is no profiler.
void run_profiled(Profiler* profiler, ProfileTrack track, const std::string& name,
                  const std::function<void()>& work);

}  // namespace coda
