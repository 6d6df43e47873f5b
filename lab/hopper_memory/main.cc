// SPDX-License-Identifier: Apache-2.0
// What bounds programs without a product, and what surrounds all programs: bytes a second against a
// copy on the device, the host's time for a launch, dependent launches, the time to the first
// result. A line a figure on the terminal, a JSON object in a file.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "bandwidth.h"
#include "block.h"
#include "cases.h"
#include "coda/error.h"
#include "launches.h"
#include "ready.h"

namespace coda::hopper_memory {
namespace {

struct Options {
  std::string what;  // empty: all
  std::string rows;  // of bandwidth: only cases whose row contains this
  std::string json;
  int64_t hidden = 0;        // only this one
  int64_t tokens = kTokens;  // of blocks
  double seconds = 0.2;
  bool in_graphs = false;
};

int run(const Options& options) {
  auto state = std::make_shared<gpu::GpuState>();
  state->context = std::make_shared<gpu::Context>();
  const gpu::Context::Scope scope(*state->context);
  state->kernels = std::make_unique<gpu::LoadedKernels>(state->context, gpu::CacheOptions{});
  gpu::check_driver(gpu::driver().stream_create(&state->stream, gpu::cuda::kNonBlocking),
                    "making a stream");
  std::ofstream json;
  if (!options.json.empty()) json.open(options.json);
  const auto wants = [&](const char* what) { return options.what.empty() || options.what == what; };
  if (wants("ready")) measure_ready(state, json);
  if (options.what == "ready") return 0;
  const measure::PowerMeter power;
  measure::SmClock clock(state);
  measure::Timer timer(state->stream, power, &clock);
  std::printf("%s, driver API %s\n", state->context->info().name.c_str(),
              gpu::cuda_version_text(gpu::driver().version).c_str());
  if (wants("launches")) measure_launches(state, json);
  if (wants("bandwidth")) {
    std::vector<Case> cases;
    for (const int64_t hidden : {2048, 4096}) {
      if (options.hidden != 0 && options.hidden != hidden) continue;
      for (Case& one : model_cases(hidden)) cases.push_back(std::move(one));
    }
    for (Case& one : other_cases()) cases.push_back(std::move(one));
    std::erase_if(cases,
                  [&](const Case& one) { return one.row.find(options.rows) == std::string::npos; });
    measure_bandwidth(state, cases, options.seconds, options.in_graphs, timer, json);
  }
  if (wants("block")) {
    for (const int64_t hidden : {2048, 4096, 8192}) {
      if (options.hidden != 0 && options.hidden != hidden) continue;
      for (const bool backward : {false, true}) {
        measure_block(state, block_plan(hidden, options.tokens, backward), options.seconds, timer,
                      json);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace coda::hopper_memory

int main(int argc, char** argv) {
  coda::hopper_memory::Options options;
  CLI::App app("What bounds programs without a product, and what surrounds all programs, on a GPU");
  app.add_option("what", options.what, "one part alone")
      ->check(CLI::IsMember({"ready", "launches", "bandwidth", "block"}));
  app.add_option("--rows", options.rows, "of bandwidth: only cases whose row contains this");
  app.add_option("--hidden", options.hidden, "only 2048, 4096 or 8192");
  app.add_option("--tokens", options.tokens, "rows of blocks, M")->capture_default_str();
  app.add_option("--seconds", options.seconds, "sustained, each")->capture_default_str();
  app.add_flag("--graphs", options.in_graphs,
               "bandwidth of calls that are captured into CUDA graphs");
  app.add_option("--json", options.json, "file for the results");
  CLI11_PARSE(app, argc, argv);
  try {
    return coda::hopper_memory::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hopper_memory: %s\n", error.what());
    return 2;
  }
}
