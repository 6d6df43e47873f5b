// SPDX-License-Identifier: Apache-2.0
// The time of each program of a block against the bare product inside it on cuBLAS (the best of its
// heuristics' first 16), sustained and cool. A line a case on the terminal, a JSON object a
// candidate in a file. With --tune the configurations that the model ranks first are timed too.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <list>
#include <map>
#include <sstream>
#include <string>

#include "block.h"
#include "cases.h"
#include "coda/error.h"
#include "hopper/parallel_for.h"
#include "measure/gpu_timer.h"
#include "measure/program_run.h"

namespace coda::hopper_programs {
namespace {

using measure::Candidate;

struct Options {
  std::string folder = "bench/hopper_programs/programs";
  std::string rows;  // only cases whose row contains this
  std::string json;
  int64_t hidden = 0;  // only this one
  bool tune = false;
  size_t most = 32;  // configurations that are tuned: the best by the model
  bool cool = true;
  double seconds = 1.2;  // sustained, each
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--tune") {
      options.tune = true;
      continue;
    }
    if (flag == "--no-cool") {
      options.cool = false;
      continue;
    }
    require(i + 1 < argc, flag + " takes a value");
    const std::string value = argv[++i];
    if (flag == "--programs") {
      options.folder = value;
    } else if (flag == "--rows") {
      options.rows = value;
    } else if (flag == "--json") {
      options.json = value;
    } else if (flag == "--hidden") {
      options.hidden = std::stoll(value);
    } else if (flag == "--most") {
      options.most = std::stoul(value);
    } else if (flag == "--seconds") {
      options.seconds = std::stod(value);
    } else {
      throw Error("unknown flag " + flag +
                  "; there are --programs FOLDER, --rows TEXT, --hidden D, --tune, --most N, "
                  "--no-cool, --seconds S and --json FILE");
    }
  }
  return options;
}

Program read_program(const std::string& path) {
  std::ifstream file(path);
  require(file.good(), "cannot read " + path);
  std::stringstream text;
  text << file.rdbuf();
  return parse_program(text.str());
}

Candidate* best(std::list<Candidate>& candidates, measure::Spread Candidate::* regime) {
  return &*std::min_element(candidates.begin(), candidates.end(),
                            [&](const Candidate& a, const Candidate& b) {
                              return (a.*regime).median_ms < (b.*regime).median_ms;
                            });
}

std::vector<Candidate*> all_of(std::list<Candidate>& candidates) {
  std::vector<Candidate*> result;
  for (Candidate& candidate : candidates) result.push_back(&candidate);
  return result;
}

// All kernels that a case may time, compiled at once.
void compile(hopper::HopperState& state, const Program& program, const DimValues& sizes,
             const std::vector<std::optional<hopper::GemmChoice>>& choices) {
  hopper::parallel_for(choices.size(), 0, [&](size_t i) {
    hopper::LowerOptions options;
    options.choice = choices[i];
    for (const hopper::KernelLaunch& launch : hopper::lower(program, sizes, options)) {
      state.kernels->compile(program.name, launch);
    }
  });
}

void measure_case(std::shared_ptr<hopper::HopperState> state, const Case& one,
                  const Options& options, measure::Timer& timer, std::ofstream& json) {
  const Program program = read_program(options.folder + "/" + one.file + ".coda");
  const std::vector<measure::ProductShape> products = measure::products_of(program, one.sizes);
  const unsigned sets = products.front().flops() > 4e12 ? 2 : 3;

  std::list<Candidate> peers;
  const measure::ProductPeer peer(*state, products.front(), sets);
  for (const auto& launch : peer.algorithms()) {
    Candidate& candidate = peers.emplace_back();
    candidate.name = "cuBLAS heuristic " + std::to_string(peers.size() - 1);
    candidate.launch = launch;
  }
  const auto screen = [&](std::list<Candidate>& group) {
    timer.sustained(all_of(group), 0.12, 1, 0.1);
    return best(group, &Candidate::sustained);
  };

  const measure::ProgramTensors tensors(*state, program, one.sizes, sets);
  std::vector<std::optional<hopper::GemmChoice>> choices{std::nullopt};
  if (options.tune) {
    for (const hopper::GemmChoice& choice : hopper::legal_choices(program, one.sizes, {})) {
      if (choices.size() <= options.most) choices.push_back(choice);
    }
  }
  compile(*state, program, one.sizes, choices);
  std::vector<std::unique_ptr<hopper::LaunchedKernel>> kernels;
  std::list<Candidate> ours;
  for (const auto& choice : choices) {
    kernels.push_back(measure::prepare(state, program, one.sizes, choice));
    Candidate& candidate = ours.emplace_back();
    candidate.name = choice ? hopper::text(*choice) : "chosen";
    candidate.launch = [kernel = kernels.back().get(), &tensors](unsigned set) {
      kernel->run(tensors.views(set));
    };
  }
  std::vector<Candidate*> last{screen(peers), &ours.front()};
  if (options.tune) {
    Candidate* const winner = screen(ours);
    if (winner != last.back()) last.push_back(winner);
  }
  std::map<Candidate*, double> screened;
  for (Candidate& candidate : ours) screened[&candidate] = candidate.sustained.median_ms;
  timer.sustained(last, options.seconds, 2, 1.0);
  if (options.cool) timer.cool(last, 15);

  const double peer_sustained = last.front()->sustained.median_ms;
  const double peer_cool = last.front()->cool.median_ms;
  std::printf("%-34s D %5ld  cuBLAS %8.3f ms %6.0f TF %4.0f MHz", one.row.c_str(), one.hidden,
              peer_sustained, products.front().flops() / peer_sustained * 1e-9,
              last.front()->clock_mhz);
  for (size_t i = 1; i < last.size(); ++i) {
    std::printf("  |  %s %.3f", last[i]->name.c_str(),
                last[i]->sustained.median_ms / peer_sustained);
    if (options.cool) std::printf(" cool %.3f", last[i]->cool.median_ms / peer_cool);
    std::printf(" %4.0f MHz", last[i]->clock_mhz);
  }
  std::printf("\n");
  std::fflush(stdout);
  const auto write = [&](const Candidate& candidate, double screened_ms) {
    json << nlohmann::json{{"row", one.row},
                           {"hidden", one.hidden},
                           {"product", products.front().text()},
                           {"candidate", candidate.name},
                           {"sustained_ms", candidate.sustained.median_ms},
                           {"sustained_low_ms", candidate.sustained.low_ms},
                           {"sustained_high_ms", candidate.sustained.high_ms},
                           {"cool_ms", candidate.cool.median_ms},
                           {"screened_ms", screened_ms},
                           {"sm_mhz", candidate.clock_mhz},
                           {"watts", candidate.watts}}
                .dump()
         << "\n";
  };
  for (Candidate& candidate : peers) {
    if (&candidate == last.front()) write(candidate, 0);
  }
  for (Candidate& candidate : ours) write(candidate, screened[&candidate]);
}

int run(const Options& options) {
  auto state = std::make_shared<hopper::HopperState>();
  state->context = std::make_shared<hopper::Context>();
  const hopper::Context::Scope scope(*state->context);
  hopper::check_architecture(state->context->info());
  state->kernels = std::make_unique<hopper::LoadedKernels>(state->context, hopper::CacheOptions{});
  const measure::PowerMeter power;
  std::printf("%s, driver API %s, power limit %.0f W\n", state->context->info().name.c_str(),
              hopper::cuda_version_text(hopper::driver().version).c_str(), power.limit_watts());
  hopper::check_driver(hopper::driver().stream_create(&state->stream, hopper::cuda::kNonBlocking),
                       "making a stream");
  measure::Timer timer(state->stream, power);
  std::ofstream json;
  if (!options.json.empty()) json.open(options.json);
  for (const Case& one : all_cases()) {
    if (one.row.find(options.rows) == std::string::npos) continue;
    if (options.hidden != 0 && one.hidden != options.hidden) continue;
    try {
      measure_case(state, one, options, timer, json);
    } catch (const Error& error) {
      std::printf("%s, D %ld: %s\n", one.row.c_str(), one.hidden, error.what());
    }
  }
  for (const auto& [hidden, mlp] :
       {std::pair<int64_t, int64_t>{2048, 5632}, {4096, 11008}, {8192, 22016}}) {
    if (std::string("block").find(options.rows) == std::string::npos) continue;
    if (options.hidden != 0 && hidden != options.hidden) continue;
    for (const bool backward : {false, true}) {
      measure_block(state, {hidden, mlp, backward, options.seconds}, timer, json);
    }
  }
  return 0;
}

}  // namespace
}  // namespace coda::hopper_programs

int main(int argc, char** argv) try {
  return coda::hopper_programs::run(coda::hopper_programs::parse(argc, argv));
} catch (const std::exception& error) {
  std::fprintf(stderr, "hopper_programs: %s\n", error.what());
  return 2;
}
