// SPDX-License-Identifier: Apache-2.0
#include "measure/host_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <random>

namespace coda::measure {
namespace {

double run_ms(const Candidate& candidate, int calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) candidate.launch(0);
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  return ms.count() / calls;
}

}  // namespace

void time_on_host(const std::vector<Candidate*>& candidates, const CpuTiming& options) {
  constexpr int kFewestRounds = 3;
  const auto start = std::chrono::steady_clock::now();
  const auto has_time = [&] {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    return spent.count() < options.most_seconds;
  };
  std::map<Candidate*, int> calls;
  std::map<Candidate*, std::vector<double>> samples;
  for (Candidate* candidate : candidates) {
    run_ms(*candidate, 1);
    calls[candidate] =
        std::max(1, static_cast<int>(std::lround(options.round_ms / run_ms(*candidate, 1))));
  }
  std::mt19937 random(20);
  std::vector<Candidate*> order = candidates;
  for (int round = 0; round < options.rounds && (round < kFewestRounds || has_time()); ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (Candidate* candidate : order)
      samples[candidate].push_back(run_ms(*candidate, calls[candidate]));
  }
  for (auto& [candidate, times] : samples) candidate->interleaved = spread(times);
}

std::string processor_text(int threads) {
  std::ifstream info("/proc/cpuinfo");
  std::string name = "an unknown processor";
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    name = line.substr(colon + 2);
    break;
  }
  return name + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

}  // namespace coda::measure
