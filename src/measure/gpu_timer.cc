// SPDX-License-Identifier: Apache-2.0
#include "measure/gpu_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <thread>

#include "gpu/launch/captured_graph.h"
#include "measure/burst_shape.h"

namespace coda::measure {
namespace {

using Clock = std::chrono::steady_clock;

// Watts between the first and the last time that the counter was seen to move: it moves about ten
// times a second, so that its values at any two moments would be up to a tenth too old.
class EnergyWatch {
 public:
  explicit EnergyWatch(const PowerMeter& power) : power_(power), latest_(power.joules()) {}

  void sample() {
    const double joules = power_.joules();
    if (joules == latest_) return;
    latest_ = joules;
    last_ = {Clock::now(), joules};
    if (!has_first_) first_ = last_;
    has_first_ = true;
  }
  double watts() const {
    const double seconds = std::chrono::duration<double>(last_.at - first_.at).count();
    return seconds > kLeastSeconds ? (last_.joules - first_.joules) / seconds : power_.watts();
  }

 private:
  static constexpr double kLeastSeconds = 0.4;  // that are good to a few per cent

  struct Move {
    Clock::time_point at;
    double joules = 0;
  };

  const PowerMeter& power_;
  double latest_;
  Move first_;
  Move last_;
  bool has_first_ = false;
};

// For which a burst behind a pause waits until it is enqueued: the host's first launch then takes
// up to 0.1 ms, 5 % of such a burst.
constexpr double kHoldMs = 0.5;

void shuffle(std::vector<Candidate*>& candidates) {
  static std::mt19937 random(20);
  std::shuffle(candidates.begin(), candidates.end(), random);
}

}  // namespace

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Calls of a candidate that are enqueued at once.
struct Timer::Burst {
  Candidate* candidate;
  BurstShape shape;
  double hold_ms = 0;                           // how long the stream is held before the calls
  std::unique_ptr<gpu::CapturedGraph> graph{};  // if the shape has one
};

// Of each candidate in one regime.
struct Timer::Samples {
  std::map<Candidate*, std::vector<double>> times;
  std::map<Candidate*, std::vector<double>> clocks;

  void keep(Spread Candidate::* regime) const {
    for (const auto& [candidate, ms] : times) {
      candidate->*regime = spread(ms);
      const auto mhz = clocks.find(candidate);
      if (mhz != clocks.end()) (candidate->*regime).mhz = spread(mhz->second).median_ms;
    }
  }
};

Timer::Timer(gpu::DriverHandle stream, const PowerMeter& power, SmClock* clock)
    : stream_(stream), power_(power), clock_(clock) {
  gpu::check_driver(gpu::driver().event_create(&start_, 0), "making an event");
  gpu::check_driver(gpu::driver().event_create(&stop_, 0), "making an event");
}

Timer::~Timer() {
  gpu::driver().event_destroy(start_);
  gpu::driver().event_destroy(stop_);
}

Timer::Burst Timer::burst_of(Candidate& candidate, double ms) {
  // The first of each set makes what later calls keep, and may not be captured.
  run({.candidate = &candidate,
       .shape = {.calls = static_cast<int>(std::max(1U, candidate.sets))}});
  const double call_ms = run({.candidate = &candidate, .shape = {.calls = 2}});
  Burst burst{.candidate = &candidate, .shape = burst_shape(ms, call_ms, candidate.sets)};
  if (burst.shape.captured == 0) return burst;
  burst.graph = std::make_unique<gpu::CapturedGraph>(stream_, [&] {
    for (int i = 0; i < burst.shape.captured; ++i) candidate.launch(static_cast<unsigned>(i));
  });
  return burst;
}

Timer::Bursts Timer::bursts_of(const std::vector<Candidate*>& candidates, double ms) {
  Bursts bursts;
  for (Candidate* candidate : candidates) bursts.emplace(candidate, burst_of(*candidate, ms));
  return bursts;
}

void Timer::enqueue(const Burst& burst) {
  if (clock_) clock_->mark_start(burst.hold_ms);
  gpu::check_driver(gpu::driver().event_record(start_, stream_), "timing a kernel");
  if (burst.graph) {
    for (int i = 0; i < burst.shape.calls; i += burst.shape.captured) burst.graph->run(stream_);
  } else {
    for (int i = 0; i < burst.shape.calls; ++i) burst.candidate->launch(set_++);
  }
  gpu::check_driver(gpu::driver().event_record(stop_, stream_), "timing a kernel");
  if (clock_) clock_->mark_end();
}

double Timer::elapsed_ms() const {
  float ms = 0;
  gpu::check_driver(gpu::driver().event_synchronize(stop_), "waiting for a kernel");
  gpu::check_driver(gpu::driver().event_elapsed_time(&ms, start_, stop_), "timing a kernel");
  return ms;
}

double Timer::run(const Burst& burst) {
  enqueue(burst);
  return elapsed_ms() / burst.shape.calls;
}

void Timer::sample(Samples& samples, const Burst& burst) {
  samples.times[burst.candidate].push_back(run(burst));
  if (clock_) samples.clocks[burst.candidate].push_back(clock_->mhz());
}

void Timer::interleaved(std::vector<Candidate*> candidates, int rounds, double burst_ms) {
  const Bursts bursts = bursts_of(candidates, burst_ms);
  Samples samples;
  for (int round = 0; round < rounds; ++round) {
    shuffle(candidates);
    for (Candidate* candidate : candidates) sample(samples, bursts.at(candidate));
  }
  samples.keep(&Candidate::interleaved);
}

void Timer::cool(std::vector<Candidate*> candidates, int rounds) {
  Bursts bursts = bursts_of(candidates, 2.0);
  for (auto& [candidate, burst] : bursts) burst.hold_ms = kHoldMs;
  Samples samples;
  for (int round = 0; round < rounds; ++round) {
    shuffle(candidates);
    for (Candidate* candidate : candidates) {
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
      sample(samples, bursts.at(candidate));
    }
  }
  samples.keep(&Candidate::cool);
}

void Timer::sustained(std::vector<Candidate*> candidates, double seconds, int repetitions,
                      double heat_seconds) {
  Samples samples;
  std::map<Candidate*, std::vector<double>> watts;
  const Bursts bursts = bursts_of(candidates, 20.0);
  const auto heat_start = Clock::now();
  while (seconds_since(heat_start) < heat_seconds) run(bursts.at(candidates.front()));
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    std::rotate(candidates.begin(), candidates.begin() + repetition % candidates.size(),
                candidates.end());
    for (Candidate* candidate : candidates) {
      const Burst& burst = bursts.at(candidate);
      const auto start = Clock::now();
      EnergyWatch energy(power_);
      // What comes first runs at the clock of the candidate before.
      const double settling = std::max(std::min(0.2, seconds / 2), seconds / 5);
      while (seconds_since(start) < seconds) {
        enqueue(burst);
        // While it runs: in a pause of some milliseconds the chip would cool, and clock higher.
        const double reported_mhz = clock_ ? 0 : power_.sm_clock_mhz();
        const bool is_settled = seconds_since(start) >= settling;
        if (is_settled) energy.sample();
        const double ms = elapsed_ms() / burst.shape.calls;
        const double mhz = clock_ ? clock_->mhz() : reported_mhz;
        if (!is_settled) continue;
        samples.times[candidate].push_back(ms);
        samples.clocks[candidate].push_back(mhz);
      }
      watts[candidate].push_back(energy.watts());
    }
  }
  samples.keep(&Candidate::sustained);
  for (const auto& [candidate, drawn] : watts) candidate->watts = spread(drawn).median_ms;
}

}  // namespace coda::measure
