// SPDX-License-Identifier: Apache-2.0
// Formats a table and JSON. The GEMMs alone are the reference for all ratios.
#include <fmt/format.h>

#include "bench.h"

namespace coda::tools {
namespace {

// The time in the first regime that was measured.
double first_ms(const Timed& candidate) {
  for (const TimingRegime& regime : kTimingRegimes) {
    if ((candidate.*regime.times).median_ms > 0) return (candidate.*regime.times).median_ms;
  }
  return 0;
}

double joules_a_token(const Benched& benched, const Timed& candidate) {
  if (benched.tokens == 0) return 0;
  return candidate.watts * candidate.sustained.median_ms * 1e-3 /
         static_cast<double>(benched.tokens);
}

std::string times_text(const Spread& times) {
  return fmt::format("{:.4f} ({:.4f} to {:.4f})", times.median_ms, times.low_ms, times.high_ms);
}

// The rate in the column's unit; a copy, which multiplies nothing, has its own unit.
std::string rate_text(const Measured& measured, const Timed& candidate, double ms) {
  const double gigabytes = measured.moved_bytes * 1e-6 / ms;
  if (measured.flops == 0) return fmt::format("{:.{}f}", gigabytes, gigabytes < 10 ? 3 : 0);
  if (candidate.name.starts_with("copy")) return fmt::format("{:.0f} GB/s", gigabytes);
  const double teraflops = measured.flops * 1e-9 / ms;
  return fmt::format("{:.{}f}", teraflops, teraflops < 10 ? 3 : 0);
}

}  // namespace

void print_table(const Benched& benched) {
  const Measured& measured = benched.measured;
  fmt::print("{}\n{}\n", measured.device, benched.title);
  const Timed& peer = measured.candidates.front();
  for (const TimingRegime& regime : kTimingRegimes) {
    if ((peer.*regime.times).median_ms == 0) continue;
    const bool has_clock = (peer.*regime.times).mhz > 0;  // not on a CPU
    const bool has_watts = regime.times == &Timed::sustained;
    fmt::print("\n{:28} {:>30} {:>8} {:>12}{}{}\n", regime.name, "ms (10 % to 90 %)", "ratio",
               measured.flops > 0 ? "TFLOP/s" : "GB/s", has_clock ? "   MHz" : "",
               has_watts ? "     W" : "");
    for (const Timed& candidate : measured.candidates) {
      const Spread& times = candidate.*regime.times;
      fmt::print("{:28} {:>30} {:8.3f} {:>12}", candidate.name, times_text(times),
                 times.median_ms / (peer.*regime.times).median_ms,
                 rate_text(measured, candidate, times.median_ms));
      if (has_clock) fmt::print(" {:5.0f}", times.mhz);
      if (has_watts) fmt::print(" {:5.0f}", candidate.watts);
      fmt::print("\n");
    }
  }
  if (!measured.steps.empty()) {
    fmt::print("\n{:>9} {:>14}  {}\n", "ms", "products alone", "step by itself");
    for (const TimedStep& step : measured.steps) {
      fmt::print("{:9.4f} {:>14}  {}\n", step.ms,
                 step.products_ms > 0 ? fmt::format("{:.4f}", step.products_ms) : "", step.name);
    }
  }
  if (measured.session_bytes + measured.bound_bytes > 0 && benched.tokens > 0) {
    fmt::print(
        "\nmemory: {:.1f} MB of weights and inputs, {:.1f} MB of the plan's own, results among "
        "them\n",
        static_cast<double>(measured.bound_bytes) * 1e-6,
        static_cast<double>(measured.session_bytes) * 1e-6);
  }
  for (const Timed& candidate : measured.candidates) {
    const double joules = joules_a_token(benched, candidate);
    if (joules > 0) fmt::print("energy, {}: {:.3f} mJ a token\n", candidate.name, joules * 1e3);
  }
}

void print_json(const Benched& benched) {
  const Measured& measured = benched.measured;
  nlohmann::ordered_json json{{"device", measured.device}};
  json.update(benched.about);
  if (!measured.product.empty()) json["product"] = measured.product;
  if (measured.flops > 0) json["flops"] = measured.flops;
  if (measured.moved_bytes > 0) json["bytes"] = measured.moved_bytes;
  if (benched.tokens > 0) {
    json["tokens"] = benched.tokens;
    json["session_bytes"] = measured.session_bytes;
    json["peak_bytes"] = measured.session_bytes + measured.bound_bytes;
  }
  const double of_peer = first_ms(measured.candidates.front());
  for (const Timed& candidate : measured.candidates) {
    auto one = nlohmann::ordered_json::parse(json_text(candidate));
    one["ratio"] = first_ms(candidate) / of_peer;
    if (const double joules = joules_a_token(benched, candidate); joules > 0)
      one["joules_a_token"] = joules;
    json["candidates"].push_back(std::move(one));
  }
  for (const TimedStep& step : measured.steps) {
    json["steps"].push_back(
        {{"name", step.name}, {"ms", step.ms}, {"products_alone_ms", step.products_ms}});
  }
  fmt::print("{}\n", json.dump(2));
}

}  // namespace coda::tools
