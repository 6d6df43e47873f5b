// SPDX-License-Identifier: Apache-2.0
// coda tune: times the configurations of programs' kernels on this GPU, and keeps the result for
// whoever makes these kernels here afterwards. `--table` makes the table that is shipped.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/atomic_file.h"
#include "coda/error.h"
#include "commands.h"
#include "hopper/tuned_file.h"
#include "hopper/tuned_table.h"
#include "measure/tune.h"
#include "model_programs.h"
#include "table_cases.h"

namespace coda::tools {
namespace {

struct TuneFlags {
  ProgramFlags programs;
  measure::TuneOptions options;
  bool as_json = false;
  bool keeps = true;
  bool lists = false;
  std::string table;
  std::string benchmarks = "bench/hopper_programs/programs";
  double limit = 150;  // seconds, of the table
};

struct Gpu {
  Gpu() {
    state = std::make_shared<hopper::HopperState>();
    state->context = std::make_shared<const hopper::Context>();
    hopper::check_architecture(state->context->info());
    scope = std::make_unique<hopper::Context::Scope>(*state->context);
    state->kernels =
        std::make_unique<hopper::LoadedKernels>(state->context, hopper::CacheOptions{});
    hopper::check_driver(hopper::driver().stream_create(&state->stream, hopper::cuda::kNonBlocking),
                         "making a stream");
    file = hopper::tuned_file(hopper::default_cache_folder(), state->context->info(),
                              state->kernels->builder().compiler().version());
  }

  std::shared_ptr<hopper::HopperState> state;
  std::unique_ptr<hopper::Context::Scope> scope;
  std::filesystem::path file;  // of what is tuned
};

std::vector<measure::TuneJob> jobs_of(const std::vector<SizedProgram>& programs,
                                      const hopper::LowerOptions& common) {
  std::vector<measure::TuneJob> jobs;
  std::set<std::string> seen;
  for (const SizedProgram& one : programs) {
    hopper::LowerOptions options = common;
    options.row_strides = one.options.row_strides;
    try {
      for (measure::TuneJob& job : measure::tune_jobs(one.program, one.sizes, options)) {
        const hopper::KernelClass own = measure::class_of(job);
        if (seen.insert(own.name + hopper::text(own.extents)).second)
          jobs.push_back(std::move(job));
      }
    } catch (const Error& error) {
      fmt::print(stderr, "coda: not tuned: {}\n", error.what());
    }
  }
  return jobs;
}

nlohmann::ordered_json json_of(const measure::TuneJob& job, const measure::TunedKernel& tuned) {
  nlohmann::ordered_json choices = nlohmann::json::array();
  for (const hopper::TimedChoice& one : tuned.choices) {
    choices.push_back(
        {{"configuration", hopper::code(one.choice)}, {"microseconds", one.microseconds}});
  }
  nlohmann::ordered_json spaces = nlohmann::json::array();
  for (const hopper::SpaceWork& space : tuned.work) {
    spaces.push_back({{"rows", space.extents.rows},
                      {"columns", space.extents.columns},
                      {"k", space.extents.k},
                      {"parts", space.shape.parts},
                      {"planes", space.planes},
                      {"operations", space.operations}});
  }
  return {{"program", job.name},
          {"class", tuned.kernel.name},
          {"extents", hopper::text(tuned.kernel.extents)},
          {"spaces", spaces},
          {"chosen", hopper::code(tuned.chosen.choice)},
          {"chosen_by", hopper::text(tuned.chosen)},
          {"chosen_microseconds", tuned.chosen_microseconds},
          {"choices", choices}};
}

void print_header(const Gpu& gpu) {
  fmt::print("{}, driver {}, NVRTC {}\n", gpu.state->context->info().name,
             hopper::driver_version_text(),
             gpu.state->kernels->builder().compiler().version().text());
  fmt::print("{:44} {:>26}  {:15} {:>10}  {:15} {:>10} {:>6}  {}\n", "program", "extents", "chosen",
             "us", "fastest", "us", "gain", "chosen by");
  std::fflush(stdout);
}

void print_line(const measure::TuneJob& job, const measure::TunedKernel& tuned) {
  const hopper::TimedChoice& best = tuned.choices.front();
  fmt::print("{:44} {:>26}  {:15} {:10.2f}  {:15} {:10.2f} {:5.1f}%  {}\n", job.name.substr(0, 44),
             hopper::text(tuned.kernel.extents), hopper::code(tuned.chosen.choice),
             tuned.chosen_microseconds, hopper::code(best.choice), best.microseconds,
             100 * (tuned.chosen_microseconds / best.microseconds - 1), hopper::text(tuned.chosen));
  std::fflush(stdout);
}

void tune_programs(const TuneFlags& flags, Gpu& gpu) {
  hopper::LowerOptions common;
  common.multiprocessors = static_cast<uint32_t>(gpu.state->context->info().multiprocessors);
  common.tuned = hopper::load_tuned_rows(gpu.file);
  const std::vector<measure::TuneJob> jobs = jobs_of(flags.programs.programs(), common);
  require(!jobs.empty(), "none of the programs has a product: there is nothing to tune");
  measure::Tuner tuner(gpu.state);
  hopper::TunedRows rows;
  nlohmann::ordered_json all = nlohmann::json::array();
  if (!flags.as_json) print_header(gpu);
  for (const measure::TuneJob& job : jobs) {
    const measure::TunedKernel tuned = tuner.tune(job, flags.options);
    rows.set(tuned.kernel, tuned.choices);
    if (flags.as_json) {
      all.push_back(json_of(job, tuned));
    } else {
      print_line(job, tuned);
    }
  }
  if (flags.as_json) fmt::print("{}\n", all.dump(2));
  if (!flags.keeps) return;
  require(!gpu.file.empty(), "what was measured is not kept: set CODA_CACHE_DIR to a folder");
  hopper::save_tuned_rows(gpu.file, rows);
  if (!flags.as_json) fmt::print("kept in {}\n", gpu.file.string());
}

// What matters most comes first, because time may run out.
std::vector<measure::TuneJob> table_jobs(const TuneFlags& flags) {
  std::vector<SizedProgram> programs = benchmark_programs(flags.benchmarks);
  for (const int64_t tokens : table_tokens()) {
    for (SizedProgram& one : table_programs(tokens)) programs.push_back(std::move(one));
  }
  hopper::LowerOptions common;
  common.uses_table = false;
  return jobs_of(programs, common);
}

using TileShape = std::pair<uint32_t, uint32_t>;
TileShape shape_of(const hopper::GemmChoice& choice) { return {choice.tile_m, choice.tile_n}; }

// Short visits share one clock, which flatters what draws much power, and that is mostly a matter
// of the tile's shape: how much longer each shape takes alone for long than in short visits,
// measured for a few programs.
std::map<TileShape, double> sustained_factors(measure::Tuner& tuner,
                                              const std::vector<measure::TuneJob>& jobs,
                                              measure::TuneOptions options) {
  constexpr size_t kPrograms = 7;
  constexpr size_t kBenchmarks = 39;  // the first ones
  constexpr double kLong = 0.25;      // seconds
  options.finalists = 0;
  std::map<TileShape, std::pair<double, int>> logarithms;
  size_t done = 0;
  for (size_t i = 0; i < std::min(jobs.size(), kBenchmarks) && done < kPrograms; ++i) {
    const hopper::SpaceExtents size = measure::class_of(jobs[i]).extents.front();
    if (size.rows < 16384 || size.k < 4096 || size.k > 12288 || size.columns > 16384) continue;
    ++done;
    std::map<std::string, double> brief;
    options.screen_seconds = 0.012;
    for (const auto& one : tuner.tune(jobs[i], options).choices)
      brief[hopper::code(one.choice)] = one.microseconds;
    options.screen_seconds = kLong;
    std::vector<std::pair<TileShape, double>> factors;
    double mean = 0;
    for (const auto& one : tuner.tune(jobs[i], options).choices) {
      const double factor = std::log(one.microseconds / brief.at(hopper::code(one.choice)));
      factors.emplace_back(shape_of(one.choice), factor);
      mean += factor;
    }
    mean /= static_cast<double>(factors.size());
    for (const auto& [shape, factor] : factors) {
      logarithms[shape].first += factor - mean;
      ++logarithms[shape].second;
    }
  }
  std::map<TileShape, double> result;
  for (const auto& [shape, sum] : logarithms) {
    result[shape] = std::exp(sum.first / sum.second);
    fmt::print("sustained, {}x{}: {:.3f} ({})\n", shape.first, shape.second, result[shape],
               sum.second);
  }
  return result;
}

void make_table(const TuneFlags& flags, Gpu& gpu) {
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const std::vector<measure::TuneJob> jobs = table_jobs(flags);
  measure::TuneOptions options = flags.options;
  options.is_diverse = true;
  options.screen_seconds = flags.options.seconds / 2;
  measure::Tuner tuner(gpu.state);
  tuner.compile_ahead(jobs, options);
  const std::map<TileShape, double> factors = sustained_factors(tuner, jobs, options);
  fmt::print("factors after {:.0f} s\n", seconds());
  std::fflush(stdout);
  hopper::TunedRows rows;
  size_t done = 0;
  double regret = 0;
  std::ofstream log(flags.table + ".jsonl");
  const auto save = [&] {
    const std::string measured_on = fmt::format(
        "Measured on {}, driver {}, NVRTC {}.", gpu.state->context->info().name,
        hopper::driver_version_text(), gpu.state->kernels->builder().compiler().version().text());
    write_file_atomically(flags.table, hopper::tuned_table_source(rows, measured_on));
  };
  for (const measure::TuneJob& job : jobs) {
    if (seconds() > flags.limit) break;
    try {
      measure::TunedKernel tuned = tuner.tune(job, options);
      nlohmann::ordered_json line = json_of(job, tuned);
      line["seconds"] = seconds();
      log << line.dump() << "\n";
      for (hopper::TimedChoice& one : tuned.choices) {
        const auto factor = factors.find(shape_of(one.choice));
        if (factor != factors.end()) one.microseconds *= factor->second;
        if (hopper::code(one.choice) == hopper::code(tuned.chosen.choice))
          tuned.chosen_microseconds = one.microseconds;
      }
      double least = tuned.choices.front().microseconds;
      for (const hopper::TimedChoice& one : tuned.choices)
        least = std::min(least, one.microseconds);
      regret += tuned.chosen_microseconds / least - 1;
      // What differs by less than the noise is as fast: then the model decides.
      constexpr double kNoise = 1.02;
      const auto own = std::find_if(
          tuned.choices.begin(), tuned.choices.end(), [&](const hopper::TimedChoice& one) {
            return hopper::code(one.choice) == hopper::code(tuned.chosen.choice);
          });
      if (own != tuned.choices.end() && own->microseconds <= kNoise * least) {
        own->microseconds = least;
        std::rotate(tuned.choices.begin(), own, own + 1);
      }
      rows.set(tuned.kernel, tuned.choices);
      ++done;
    } catch (const Error& error) {
      fmt::print(stderr, "coda: not tuned: {}\n", error.what());
    }
    if (done % 50 == 0) save();
  }
  save();
  fmt::print("{} of {} kernels in {:.0f} s; the model's choice is {:.2f}% slower on average\n",
             done, jobs.size(), seconds(),
             done == 0 ? 0 : 100 * regret / static_cast<double>(done));
}

void list(const TuneFlags& flags) {
  measure::TuneOptions options = flags.options;
  options.is_diverse = !flags.table.empty();
  const std::vector<measure::TuneJob> jobs =
      flags.table.empty() ? jobs_of(flags.programs.programs(), {}) : table_jobs(flags);
  std::set<std::string> sources;
  size_t candidates = 0;
  for (const measure::TuneJob& job : jobs) {
    const hopper::KernelClass own = measure::class_of(job);
    fmt::print("{} | {} | {}\n", own.name, hopper::text(own.extents), job.name);
    for (const hopper::KernelLaunch& launch : measure::tuned_launches(job, options)) {
      sources.insert(launch.source);
      ++candidates;
    }
  }
  fmt::print("{} kernels, {} configurations of them, {} to compile\n", jobs.size(), candidates,
             sources.size());
}

void run(const TuneFlags& flags) {
  if (flags.lists) return list(flags);
  Gpu gpu;
  if (flags.table.empty()) {
    tune_programs(flags, gpu);
  } else {
    make_table(flags, gpu);
  }
}

}  // namespace

void add_tune(CLI::App& app) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App& command = *app.add_subcommand(
      "tune", "Time configurations of kernels on this GPU, and keep the fastest for later runs");
  flags->programs.add_to(command);
  command.add_option("--most", flags->options.most, "Configurations: the best by the model")
      ->check(CLI::Range(1, 200))
      ->capture_default_str();
  command
      .add_option("--seconds", flags->options.seconds,
                  "For each of the three fastest, twice; a sixth of it for the others")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  command.add_flag("--json", flags->as_json, "Print one JSON object a kernel");
  command.add_flag("!--no-keep", flags->keeps, "Only print what was measured");
  command.add_flag("--list", flags->lists, "Only list what would be timed; needs no GPU");
  command.add_option("--table", flags->table, "Make the table that is shipped, as this file")
      ->type_name("FILE")
      ->group("For the project");
  command.add_option("--benchmarks", flags->benchmarks, "The benchmarks' programs, for the table")
      ->type_name("FOLDER")
      ->capture_default_str()
      ->group("For the project");
  command.add_option("--limit", flags->limit, "Seconds for the table")
      ->capture_default_str()
      ->group("For the project");
  command.callback([flags] {
    flags->options.screen_seconds = flags->options.seconds / 6;
    run(*flags);
  });
}

}  // namespace coda::tools
