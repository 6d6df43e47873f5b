// SPDX-License-Identifier: Apache-2.0
#include "tune_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>

#include "base/atomic_file.h"
#include "coda/error.h"
#include "hopper/tuned_file.h"
#include "hopper/tuned_table.h"
#include "table_cases.h"

namespace coda::tools {
namespace {

// A row of exactly these extents.
bool has_row(const hopper::TunedRows& rows, const hopper::KernelClass& kernel) {
  const hopper::TunedRow* row = rows.nearest(kernel);
  return row != nullptr && row->extents == kernel.extents;
}

bool is_part(const TableFlags& flags) { return flags.only_missing || !flags.only.empty(); }

std::vector<measure::TuneJob> all_jobs(const TableFlags& flags) {
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

}  // namespace

std::vector<measure::TuneJob> table_jobs(const TableFlags& flags) {
  std::vector<measure::TuneJob> jobs = all_jobs(flags);
  std::erase_if(jobs, [&](const measure::TuneJob& job) {
    const hopper::KernelClass own = measure::class_of(job);
    const std::string name = own.name + " | " + hopper::text(own.extents);
    return (flags.only_missing && has_row(hopper::tuned_table(), own)) ||
           name.find(flags.only) == std::string::npos;
  });
  return jobs;
}

void make_table(const TableFlags& flags, measure::TuneOptions options, TuneGpu& gpu) {
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const std::vector<measure::TuneJob> jobs = table_jobs(flags);
  require(!jobs.empty(), "the table has a row for each of these kernels: nothing to time");
  options.is_diverse = true;
  options.screen_seconds = options.seconds / 2;
  measure::Tuner tuner(gpu.state);
  tuner.compile_ahead(jobs, options);
  const std::map<TileShape, double> factors = sustained_factors(tuner, all_jobs(flags), options);
  fmt::print("factors after {:.0f} s\n", seconds());
  std::fflush(stdout);
  hopper::TunedRows rows = is_part(flags) ? hopper::tuned_table() : hopper::TunedRows();
  size_t done = 0;
  double regret = 0;
  std::ofstream log(flags.file + ".jsonl");
  const auto save = [&] {
    const std::string measured_on = fmt::format(
        "Measured on {}, driver {}, NVRTC {}.", gpu.state->context->info().name,
        hopper::driver_version_text(), gpu.state->kernels->builder().compiler().version().text());
    write_file_atomically(flags.file, hopper::tuned_table_source(rows, measured_on));
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

}  // namespace coda::tools
