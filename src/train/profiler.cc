// SPDX-License-Identifier: Apache-2.0
// Stores start and end of each event and converts them to seconds in events().
#include "train/profiler.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/atomic_file.h"

namespace coda {

Profiler::Profiler(Backend& backend) : backend_(backend) {
  backend_.synchronize();
  first_ = backend_.stamp();
  start_ = Clock::now();
}

std::function<double()> Profiler::host_now() const {
  const std::chrono::duration<double> now = Clock::now() - start_;
  return [now] { return now.count(); };
}

void Profiler::run(ProfileTrack track, const std::string& name, const std::function<void()>& work) {
  const auto now = [&] {
    return track == ProfileTrack::host ? host_now() : [stamp = backend_.stamp(), first = first_] {
      return stamp() - first();
    };
  };
  Noted noted{name, track, now(), {}};
  work();
  noted.to = now();
  noted_.push_back(std::move(noted));
}

std::vector<ProfileEvent> Profiler::events() const {
  std::vector<ProfileEvent> events;
  for (const Noted& one : noted_) {
    const double from = one.from();
    events.push_back({one.name, one.track, from, std::max(0.0, one.to() - from)});
  }
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.track, a.start) < std::tuple(b.track, b.start);
  });
  return events;
}

void run_profiled(Profiler* profiler, ProfileTrack track, const std::string& name,
                  const std::function<void()>& work) {
  if (profiler == nullptr) return work();
  profiler->run(track, name, work);
}

std::string chrome_trace(const std::vector<ProfileEvent>& events, const std::string& title) {
  constexpr const char* kTracks[] = {"compute", "copies and collectives", "host"};
  constexpr double kMicroseconds = 1e6;
  using nlohmann::ordered_json;
  ordered_json lines = ordered_json::array();
  const auto name = [&](const char* what, int track, const std::string& value) {
    lines.push_back(
        {{"name", what}, {"ph", "M"}, {"pid", 0}, {"tid", track}, {"args", {{"name", value}}}});
  };
  name("process_name", 0, title);
  for (int track = 0; track < 3; ++track) name("thread_name", track, kTracks[track]);
  for (const ProfileEvent& event : events) {
    lines.push_back({{"name", event.name},
                     {"ph", "X"},
                     {"pid", 0},
                     {"tid", static_cast<int>(event.track)},
                     {"ts", kMicroseconds * event.start},
                     {"dur", kMicroseconds * event.seconds}});
  }
  const ordered_json whole{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(lines)}};
  return whole.dump(1) + "\n";
}

void write_chrome_trace(const std::filesystem::path& file, const std::vector<ProfileEvent>& events,
                        const std::string& title) {
  write_file_atomically(file, chrome_trace(events, title));
}

}  // namespace coda
