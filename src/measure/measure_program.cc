// SPDX-License-Identifier: Apache-2.0
#include "measure/measure_program.h"

#include <algorithm>
#include <cmath>
#include <list>

#include "coda/error.h"
#include "hopper/jit/parallel_for.h"
#include "hopper/lower.h"
#include "measure/program_run.h"

namespace coda::measure {
namespace {

constexpr double kL2Bytes = 60e6;  // and some more
constexpr unsigned kMostSets = 48;

std::vector<Candidate*> all_of(std::vector<Candidate>& candidates) {
  std::vector<Candidate*> result;
  for (Candidate& candidate : candidates) result.push_back(&candidate);
  return result;
}

Candidate& fastest(std::vector<Candidate>& candidates) {
  return *std::min_element(candidates.begin(), candidates.end(),
                           [](const Candidate& a, const Candidate& b) {
                             return a.sustained.median_ms < b.sustained.median_ms;
                           });
}

// When a set's turn comes again, the L2 cache has seen four times what it holds.
unsigned sets_for(double bytes) {
  return std::clamp(static_cast<unsigned>(4 * kL2Bytes / bytes) + 1, bytes > 2e9 ? 2U : 3U,
                    kMostSets);
}

// All kernels that will be timed, compiled at once.
void compile(hopper::HopperState& state, const Program& program, const DimValues& sizes,
             const std::vector<std::optional<hopper::GemmConfig>>& choices) {
  hopper::parallel_for(choices.size(), 0, [&](size_t i) {
    hopper::LowerOptions options;
    options.choice = choices[i];
    for (const hopper::KernelLaunch& launch : hopper::lower(program, sizes, options)) {
      state.kernels->compile(program.name, launch);
    }
  });
}

}  // namespace

double moved_bytes(const Program& program, const DimValues& sizes) {
  double bytes = 0;
  for (const TensorDecl& decl : program.tensors) {
    const PhysicalShape shape = physical_shape(decl, sizes);
    bytes += static_cast<double>(shape.rows * shape.cols * size_of(decl.dtype));
  }
  return bytes;
}

void measure(Timer& timer, const std::vector<Candidate*>& candidates, const Regimes& regimes) {
  const double seconds = regimes.heat_seconds +
                         static_cast<double>(candidates.size()) *
                             (regimes.seconds * regimes.repetitions + 0.05 * regimes.cool_rounds);
  regimes.says("timing for some " + std::to_string(std::lround(seconds)) + " s");
  if (regimes.seconds > 0)
    timer.sustained(candidates, regimes.seconds, regimes.repetitions, regimes.heat_seconds);
  if (regimes.cool_rounds > 0) timer.cool(candidates, regimes.cool_rounds);
  if (regimes.interleaved_rounds > 0)
    timer.interleaved(candidates, regimes.interleaved_rounds, 10.0);
}

MeasuredProgram measure_program(Gpu& gpu, const Program& program, const DimValues& sizes,
                                const MeasureOptions& options) {
  MeasuredProgram result;
  result.moved_bytes = moved_bytes(program, sizes);
  const unsigned sets = options.sets > 0 ? options.sets : sets_for(result.moved_bytes);
  Timer& timer = gpu.timer();
  const auto screen = [&](std::vector<Candidate>& group) -> Candidate& {
    timer.sustained(all_of(group), kScreenSeconds, 1, 0.1);
    return fastest(group);
  };

  std::vector<Candidate*> last;
  std::vector<Candidate> peers;
  std::optional<ProductPeer> peer;
  for (const ProductShape& shape : products_of(program, sizes)) {
    if (!result.product || shape.flops() > result.product->flops()) result.product = shape;
  }
  if (result.product) {
    options.regimes.says("cuBLAS, " + result.product->text());
    peer.emplace(*gpu.state(), *result.product, sets);
    for (const auto& launch : peer->algorithms()) {
      peers.push_back({.name = "cuBLAS heuristic " + std::to_string(peers.size()),
                       .launch = launch,
                       .sets = sets});
    }
    last.push_back(&screen(peers));
    if (last.front() != &peers.front()) last.push_back(&peers.front());
  }
  const size_t timed_peers = last.size();

  const ProgramTensors tensors(*gpu.state(), program, sizes, sets);
  std::vector<std::optional<hopper::GemmConfig>> choices{std::nullopt};
  if (options.tuned > 0 && result.product) {
    for (const hopper::GemmConfig& choice : hopper::legal_choices(program, sizes, {})) {
      if (choices.size() <= options.tuned) choices.emplace_back(choice);
    }
  }
  options.regimes.says("compiling " + program.name);
  compile(*gpu.state(), program, sizes, choices);
  std::vector<std::unique_ptr<hopper::LaunchedKernel>> kernels;
  std::vector<Candidate> ours;
  for (const auto& choice : choices) {
    kernels.push_back(prepare(gpu.state(), program, sizes, choice));
    ours.push_back({.name = choice ? hopper::text(*choice) : "chosen",
                    .launch = [kernel = kernels.back().get(),
                               &tensors](unsigned set) { kernel->run(tensors.views(set)); },
                    .sets = sets});
  }
  std::vector<Candidate*> timed{&ours.front()};
  if (options.times_all) {
    timed = all_of(ours);
  } else if (options.tuned > 0) {
    Candidate& winner = screen(ours);
    result.screened = ours;
    if (&winner != &ours.front()) timed.push_back(&winner);
  }
  last.insert(last.end(), timed.begin(), timed.end());
  measure(timer, last, options.regimes);

  if (timed_peers > 0) result.peer = *last[0];
  if (timed_peers > 1) result.first_heuristic = *last[1];
  for (const Candidate* candidate : timed) result.ours.push_back(*candidate);
  result.peer.launch = nullptr;
  if (result.first_heuristic) result.first_heuristic->launch = nullptr;
  for (auto* group : {&result.ours, &result.screened}) {
    for (Candidate& candidate : *group) candidate.launch = nullptr;
  }
  return result;
}

}  // namespace coda::measure
