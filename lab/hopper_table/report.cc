// SPDX-License-Identifier: Apache-2.0
#include "lab/hopper_table/report.h"

#include <algorithm>
#include <stdexcept>

namespace coda::hopper_table {
namespace {

// The fastest in one regime, among those that ran in it; 0 if none did.
double fastest(const std::vector<Candidate*>& candidates, Spread Candidate::* regime) {
  double best = 0;
  for (const Candidate* candidate : candidates) {
    const double ms = (candidate->*regime).median_ms;
    if (ms > 0 && (best == 0 || ms < best)) best = ms;
  }
  return best;
}

void print_regime(const Spread& spread, double peer_ms, double flops) {
  if (spread.median_ms == 0) {
    std::printf(" %22s |", "");
    return;
  }
  std::printf(" %8.4f %5.0f %7.3f |", spread.median_ms, flops / spread.median_ms * 1e-9,
              spread.median_ms / peer_ms);
}

}  // namespace

Report::Report(const std::string& json_path) {
  if (json_path.empty()) return;
  json_ = std::fopen(json_path.c_str(), "a");
  if (json_ == nullptr) throw std::runtime_error("cannot write " + json_path);
}

Report::~Report() {
  if (json_ != nullptr) std::fclose(json_);
}

void Report::add(const Shape& shape, const std::vector<Candidate*>& peers,
                 const std::vector<Candidate*>& ours, bool screening) {
  const double interleaved = fastest(peers, &Candidate::interleaved);
  const double cool = fastest(peers, &Candidate::cool);
  const double sustained = fastest(peers, &Candidate::sustained);
  std::printf(
      "\n%s\n%-42s | sustained ms TF ratio   | cool ms TF ratio        |"
      " interleaved ms TF ratio |  MHz |   W\n",
      shape.name().c_str(), "");
  std::vector<Candidate*> all = peers;
  all.insert(all.end(), ours.begin(), ours.end());
  for (const Candidate* candidate : all) {
    const bool measured = candidate->sustained.median_ms > 0 || candidate->cool.median_ms > 0;
    if (measured || screening) {
      std::printf("%-42s |", candidate->name.c_str());
      print_regime(candidate->sustained, sustained, shape.flops());
      print_regime(candidate->cool, cool, shape.flops());
      print_regime(candidate->interleaved, interleaved, shape.flops());
      std::printf(" %4.0f | %3.0f\n", candidate->sustained.mhz, candidate->watts);
    }
    if (json_ == nullptr) continue;
    std::fprintf(json_, "{\"shape\": \"%s\", \"candidate\": \"%s\"", shape.name().c_str(),
                 candidate->name.c_str());
    const auto regime = [&](const char* name, const Spread& spread, double peer_ms) {
      if (spread.median_ms == 0) return;
      std::fprintf(json_,
                   ", \"%s\": {\"ms\": %.5f, \"low\": %.5f, \"high\": %.5f, \"ratio\": %.4f}", name,
                   spread.median_ms, spread.low_ms, spread.high_ms, spread.median_ms / peer_ms);
    };
    regime("sustained", candidate->sustained, sustained);
    regime("cool", candidate->cool, cool);
    regime("interleaved", candidate->interleaved, interleaved);
    std::fprintf(json_, ", \"mhz\": %.0f, \"watts\": %.1f}\n", candidate->sustained.mhz,
                 candidate->watts);
  }
  std::fflush(stdout);
  if (json_ != nullptr) std::fflush(json_);
}

}  // namespace coda::hopper_table
