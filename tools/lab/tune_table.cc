// SPDX-License-Identifier: Apache-2.0
#include "tune_table.h"

#include <fmt/format.h>

#include <chrono>

#include "base/atomic_file.h"
#include "coda/error.h"
#include "hopper/configure/tuned_table.h"
#include "sustained_kernel.h"
#include "table_cases.h"
#include "table_log.h"

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
    log.add({{"measured_on", gpu.name()}});
    options.is_diverse = true;
    options.screen_seconds = options.seconds / 2;
    measure::Tuner tuner(gpu.state);
    tuner.compile_ahead(missing, options);
    for (const measure::TuneJob& job : missing) {
      if (seconds() > flags.limit) break;
      try {
        log.add(tuned_json(job, tuner.tune(job, options)));
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
    SustainedKernel own = sustained(*timed, log.long_run(kernel));
    rows.set(kernel, std::move(own.choices));
    regret += own.regret;
    ++done;
  }
  write_file_atomically(flags.file,
                        "# Made by `table_maker`: it is not edited. tuned_rows.h says what a row "
                        "is.\n# Measured on " +
                            log.measured_on() + ".\n" + rows.text());
  fmt::print("{} of {} kernels in {:.0f} s; the model's choice is {:.2f}% slower on average\n",
             done, jobs.size(), seconds(),
             done == 0 ? 0 : 100 * regret / static_cast<double>(done));
}

}  // namespace coda::tools
