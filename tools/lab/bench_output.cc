// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "bench.h"

namespace coda::tools {
namespace {

using measure::Candidate;
using measure::Spread;

struct Regime {
  const char* name;
  Spread Candidate::* times;
};
constexpr Regime kRegimes[] = {{"sustained", &Candidate::sustained},
                               {"cool", &Candidate::cool},
                               {"interleaved", &Candidate::interleaved}};

// In the regime that comes first of those that were measured.
double first_ms(const Candidate& candidate) {
  for (const Regime& regime : kRegimes) {
    if ((candidate.*regime.times).median_ms > 0) return (candidate.*regime.times).median_ms;
  }
  return 0;
}

double joules_a_token(const Measured& measured, const Candidate& candidate) {
  if (measured.tokens == 0) return 0;
  return candidate.watts * candidate.sustained.median_ms * 1e-3 /
         static_cast<double>(measured.tokens);
}

std::string times_text(const Spread& times) {
  return fmt::format("{:.4f} ({:.4f} to {:.4f})", times.median_ms, times.low_ms, times.high_ms);
}

}  // namespace

void print_table(const Measured& measured) {
  fmt::print("{}\n{}\n", measured.device, measured.title);
  const Candidate& peer = measured.candidates.front();
  for (const Regime& regime : kRegimes) {
    if ((peer.*regime.times).median_ms == 0) continue;
    const bool has_clock = (peer.*regime.times).mhz > 0;  // not on a CPU
    const bool has_watts = regime.times == &Candidate::sustained;
    fmt::print("\n{:28} {:>30} {:>8} {:>12}{}{}\n", regime.name, "ms (10 % to 90 %)", "ratio",
               measured.flops > 0 ? "TFLOP/s" : "GB/s", has_clock ? "   MHz" : "",
               has_watts ? "     W" : "");
    for (const Candidate& candidate : measured.candidates) {
      const Spread& times = candidate.*regime.times;
      const double rate = measured.flops > 0 ? measured.flops * 1e-9 : measured.moved_bytes * 1e-6;
      fmt::print("{:28} {:>30} {:8.3f} {:12.{}f}", candidate.name, times_text(times),
                 times.median_ms / (peer.*regime.times).median_ms, rate / times.median_ms,
                 rate / times.median_ms < 10 ? 3 : 0);
      if (has_clock) fmt::print(" {:5.0f}", times.mhz);
      if (has_watts) fmt::print(" {:5.0f}", candidate.watts);
      fmt::print("\n");
    }
  }
  if (measured.session_bytes + measured.bound_bytes > 0 && measured.tokens > 0) {
    fmt::print(
        "\nmemory: {:.1f} MB of weights and inputs, {:.1f} MB of the plan's own, results among "
        "them\n",
        static_cast<double>(measured.bound_bytes) * 1e-6,
        static_cast<double>(measured.session_bytes) * 1e-6);
  }
  for (const Candidate& candidate : measured.candidates) {
    const double joules = joules_a_token(measured, candidate);
    if (joules > 0) fmt::print("energy, {}: {:.3f} mJ a token\n", candidate.name, joules * 1e3);
  }
}

void print_json(const Measured& measured) {
  nlohmann::ordered_json json{{"device", measured.device}};
  json.update(measured.about);
  if (measured.flops > 0) json["flops"] = measured.flops;
  if (measured.moved_bytes > 0) json["bytes"] = measured.moved_bytes;
  if (measured.tokens > 0) {
    json["tokens"] = measured.tokens;
    json["session_bytes"] = measured.session_bytes;
    json["peak_bytes"] = measured.session_bytes + measured.bound_bytes;
  }
  const double of_peer = first_ms(measured.candidates.front());
  for (const Candidate& candidate : measured.candidates) {
    nlohmann::ordered_json one = measure::to_json(candidate);
    one["ratio"] = first_ms(candidate) / of_peer;
    if (const double joules = joules_a_token(measured, candidate); joules > 0)
      one["joules_a_token"] = joules;
    json["candidates"].push_back(std::move(one));
  }
  fmt::print("{}\n", json.dump(2));
}

}  // namespace coda::tools
