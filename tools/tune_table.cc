// SPDX-License-Identifier: Apache-2.0
#include "tune_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "base/atomic_file.h"
#include "coda/error.h"
#include "hopper/tuned_file.h"
#include "hopper/tuned_table.h"
#include "table_cases.h"

namespace coda::tools {
namespace {

std::vector<measure::TuneJob> all_jobs(const TableFlags& flags) {
  std::vector<SizedProgram> programs = benchmark_programs(flags.benchmarks);
  for (const int64_t tokens : table_tokens()) {
    for (SizedProgram& one : table_programs(tokens)) programs.push_back(std::move(one));
  }
  hopper::LowerOptions common;
  common.uses_table = false;
  return jobs_of(programs, common);
}

// What was timed, a line each, so that a later run goes on where one ended: kernels, as json_of
// has them, and before them what they were timed on.
class TableLog {
 public:
  explicit TableLog(const std::string& file) : file_(file) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::ordered_json one = nlohmann::ordered_json::parse(line, nullptr, false);
      if (!one.is_discarded()) keep(one);  // a run may have ended within a line
    }
  }

  void add(const nlohmann::ordered_json& one) {
    if (!out_.is_open()) out_.open(file_, std::ios::app);
    out_ << one.dump() << "\n" << std::flush;
    require(out_.good(), "the table's log " + file_ + " cannot be written");
    keep(one);
  }
  const nlohmann::ordered_json* find(const hopper::KernelClass& kernel) const {
    const auto found = kernels_.find(key(kernel.name, hopper::text(kernel.extents)));
    return found == kernels_.end() ? nullptr : &found->second;
  }
  const std::string& measured_on() const { return measured_on_; }

 private:
  static std::string key(const std::string& kernel_class, const std::string& extents) {
    return kernel_class + " | " + extents;
  }
  void keep(const nlohmann::ordered_json& one) {
    if (one.contains("measured_on")) {
      measured_on_ = one["measured_on"];
    } else {
      kernels_[key(one["class"], one["extents"])] = one;
    }
  }

  std::string file_;
  std::ofstream out_;
  std::string measured_on_;
  std::map<std::string, nlohmann::ordered_json> kernels_;
};

// ---- From short visits to long runs.
//
// All candidates are visited at one clock, that of a hot chip. Run for long, each gets the clock
// that its own power allows: what takes more cycles for the same work does less a cycle, and runs
// faster. 65 configurations of the benchmark's programs timed both ways (bench/hopper_programs,
// 0.7 and 1 s alone, H200): of a difference in cycles 0.4 remains (as an exponent), and each tile
// shape has a factor, smaller for those that read fewer bytes of operands a flop. The standard
// error is 2.3 %, of which 2 are the noise of both.
constexpr double kRemains = 0.4;
double shape_factor(const hopper::GemmChoice& choice) {
  const uint32_t small = std::min(choice.tile_m, choice.tile_n);
  const uint32_t large = std::max(choice.tile_m, choice.tile_n);
  if (small == 192 || large == 256) return small == 64 ? 1.01 : small == 128 ? 0.943 : 0.924;
  if (large == 192) return 0.965;  // 128x192 0.961, 192x128 0.970
  // Tiles of 64 rows or columns were not timed so; by their bytes a flop.
  return small == 128 ? 1.0 : large == 128 ? 1.03 : 1.08;
}
// What does fewer flops a second than this (in short visits, at some 1400 MHz) does not meet the
// limit of power at any clock: its cycles decide.
constexpr double kLimited = 450e12;

double flops_of(const nlohmann::ordered_json& kernel) {
  double flops = 0;
  for (const auto& space : kernel["spaces"]) {
    flops += 2.0 * space["rows"].get<double>() * space["columns"].get<double>() *
             space["k"].get<double>() * space["parts"].get<double>();
  }
  return flops;
}

// A kernel's configurations by the time that they take when they run for long.
struct SustainedKernel {
  std::vector<hopper::TimedChoice> choices;
  double regret = 0;  // of the model's own choice
};
SustainedKernel sustained(const nlohmann::ordered_json& kernel) {
  SustainedKernel result;
  double brief = std::numeric_limits<double>::infinity();
  for (const auto& one : kernel["choices"])
    brief = std::min(brief, one["microseconds"].get<double>());
  const bool is_limited = flops_of(kernel) / (brief * 1e-6) > kLimited;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& one : kernel["choices"]) {
    const auto choice = hopper::parse_choice(one["configuration"].get<std::string>());
    if (!choice) continue;
    double microseconds = one["microseconds"];
    if (is_limited)
      microseconds = brief * std::pow(microseconds / brief, kRemains) * shape_factor(*choice);
    result.choices.push_back({*choice, microseconds});
    least = std::min(least, microseconds);
  }
  const std::string chosen = kernel["chosen"];
  const auto own = std::find_if(
      result.choices.begin(), result.choices.end(),
      [&](const hopper::TimedChoice& one) { return hopper::code(one.choice) == chosen; });
  if (own == result.choices.end()) return result;
  result.regret = own->microseconds / least - 1;
  // What differs by less than the noise is as fast: then the model decides.
  constexpr double kNoise = 1.02;
  if (own->microseconds <= kNoise * least) {
    own->microseconds = least;
    std::rotate(result.choices.begin(), own, own + 1);
  }
  return result;
}

bool is_wanted(const TableFlags& flags, const hopper::KernelClass& kernel) {
  const std::string name = kernel.name + " | " + hopper::text(kernel.extents);
  return name.find(flags.only) != std::string::npos;
}

}  // namespace

std::vector<measure::TuneJob> table_jobs(const TableFlags& flags) {
  std::vector<measure::TuneJob> jobs = all_jobs(flags);
  std::erase_if(
      jobs, [&](const measure::TuneJob& job) { return !is_wanted(flags, measure::class_of(job)); });
  return jobs;
}

void make_table(const TableFlags& flags, measure::TuneOptions options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const std::vector<measure::TuneJob> jobs = table_jobs(flags);
  require(!jobs.empty(), "no kernel of the table has '" + flags.only + "' in its class or sizes");
  TableLog log(flags.file + ".jsonl");
  std::vector<measure::TuneJob> missing = jobs;
  std::erase_if(missing, [&](const measure::TuneJob& job) {
    return log.find(measure::class_of(job)) != nullptr;
  });
  if (!missing.empty()) {
    const TuneGpu gpu;
    log.add(
        {{"measured_on", fmt::format("{}, driver {}, NVRTC {}", gpu.state->context->info().name,
                                     hopper::driver_version_text(),
                                     gpu.state->kernels->builder().compiler().version().text())}});
    options.is_diverse = true;
    options.screen_seconds = options.seconds / 2;
    measure::Tuner tuner(gpu.state);
    tuner.compile_ahead(missing, options);
    for (const measure::TuneJob& job : missing) {
      if (seconds() > flags.limit) break;
      try {
        log.add(json_of(job, tuner.tune(job, options)));
      } catch (const Error& error) {
        fmt::print(stderr, "coda: not tuned: {}\n", error.what());
      }
    }
  }

  // Kernels that are not asked for keep the row that is shipped.
  hopper::TunedRows rows = flags.only.empty() ? hopper::TunedRows() : hopper::tuned_table();
  size_t done = 0;
  double regret = 0;
  for (const measure::TuneJob& job : jobs) {
    const hopper::KernelClass kernel = measure::class_of(job);
    const nlohmann::ordered_json* timed = log.find(kernel);
    if (timed == nullptr) continue;
    SustainedKernel own = sustained(*timed);
    rows.set(kernel, std::move(own.choices));
    regret += own.regret;
    ++done;
  }
  write_file_atomically(flags.file,
                        hopper::tuned_table_source(rows, "Measured on " + log.measured_on() + "."));
  fmt::print("{} of {} kernels in {:.0f} s; the model's choice is {:.2f}% slower on average\n",
             done, jobs.size(), seconds(),
             done == 0 ? 0 : 100 * regret / static_cast<double>(done));
}

}  // namespace coda::tools
