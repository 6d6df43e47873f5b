// SPDX-License-Identifier: Apache-2.0
// Makes the table of configurations that is shipped, src/gpu/sm90/tuned_rows.txt. It takes
// minutes of a GPU, so what has been timed is kept in a log beside the file, FILE.jsonl, and a
// later run goes on from there; a GPU is needed only for what is not in the log.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <set>

#include "base/atomic_file.h"
#include "coda/error.h"
#include "gpu/configure/tuned_table.h"
#include "lab/table/sustained_kernel.h"
#include "lab/table/table_cases.h"
#include "lab/table/table_log.h"
#include "measure/gpu.h"

namespace coda::table {
namespace {

struct Flags {
  std::string file;
  std::string benchmarks = "programs";
  std::string cases;
  std::string only;
  double limit = 150;
  bool lists = false;
  measure::TuneEffort effort{.is_diverse = true};
};

nlohmann::ordered_json timed_json(const measure::TuneJob& job, const measure::TimedKernel& timed) {
  nlohmann::ordered_json choices = nlohmann::json::array();
  for (const gpu::TimedChoice& one : timed.choices) {
    choices.push_back(
        {{"configuration", gpu::code(one.choice)}, {"microseconds", one.microseconds}});
  }
  nlohmann::ordered_json spaces = nlohmann::json::array();
  for (const gpu::SpaceWork& space : timed.work) {
    spaces.push_back({{"rows", space.extents.rows},
                      {"columns", space.extents.columns},
                      {"k", space.extents.k},
                      {"parts", space.shape.parts},
                      {"planes", space.planes},
                      {"operations", space.operations}});
  }
  return {{"program", job.name},
          {"class", timed.kernel.name},
          {"extents", gpu::text(timed.kernel.extents)},
          {"spaces", spaces},
          {"chosen", gpu::code(timed.chosen.choice)},
          {"chosen_by", gpu::text(timed.chosen)},
          {"chosen_microseconds", timed.chosen_microseconds},
          {"choices", choices}};
}

void list(const std::vector<measure::TuneJob>& jobs, const measure::TuneEffort& effort) {
  std::set<std::string> sources;
  size_t candidates = 0;
  for (const measure::TuneJob& job : jobs) {
    const gpu::KernelClass own = measure::class_of(job);
    std::printf("%s | %s | %s\n", own.name.c_str(), gpu::text(own.extents).c_str(),
                job.name.c_str());
    for (const gpu::KernelLaunch& launch : measure::tuned_launches(job, effort)) {
      sources.insert(launch.source);
      ++candidates;
    }
  }
  std::printf("%zu kernels, %zu configurations of them, %zu to compile\n", jobs.size(), candidates,
              sources.size());
}

void run(const Flags& flags) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<measure::TuneJob> jobs =
      jobs_of(table_cases(flags.benchmarks), flags.cases, /*uses_table=*/false);
  std::set<std::string> seen;  // each class at each size once
  std::erase_if(jobs, [&](const measure::TuneJob& job) {
    const gpu::KernelClass kernel = measure::class_of(job);
    const std::string name = kernel.name + " | " + gpu::text(kernel.extents);
    return !seen.insert(name).second || name.find(flags.only) == std::string::npos;
  });
  require(!jobs.empty(), "no kernel of the table has '" + flags.only + "' in its class or sizes");
  if (flags.lists) return list(jobs, flags.effort);
  TableLog log(flags.file + ".jsonl");
  std::vector<measure::TuneJob> missing = jobs;
  std::erase_if(missing, [&](const measure::TuneJob& job) {
    return log.find(measure::class_of(job)) != nullptr;
  });
  if (!missing.empty()) {
    const measure::Gpu gpu;
    log.add({{"measured_on", measure::measured_on(*gpu.state())}});
    measure::Tuner tuner(gpu.state());
    tuner.compile_ahead(missing, flags.effort);
    for (const measure::TuneJob& job : missing) {
      if (measure::seconds_since(begin) > flags.limit) break;
      try {
        log.add(timed_json(job, tuner.tune(job, flags.effort)));
      } catch (const Error& error) {
        std::fprintf(stderr, "table_maker: not tuned: %s\n", error.what());
      }
    }
  }

  // Kernels that are not asked for keep the row that is shipped.
  const bool is_part = !flags.only.empty() || !flags.cases.empty();
  gpu::TunedRows rows = is_part ? gpu::measured_rows(gpu::sm90(), false) : gpu::TunedRows();
  size_t done = 0;
  double regret = 0;
  for (const measure::TuneJob& job : jobs) {
    const gpu::KernelClass kernel = measure::class_of(job);
    const nlohmann::ordered_json* timed = log.find(kernel);
    if (timed == nullptr) continue;
    SustainedKernel own = sustained(*timed, log.long_run(kernel));
    rows.set(kernel, std::move(own.choices));
    regret += own.regret;
    ++done;
  }
  write_file_atomically(flags.file,
                        "# Made by lab/table: it is not edited. tuned_rows.h says what a row is.\n"
                        "# Measured on " +
                            log.measured_on() + ".\n" + rows.text());
  std::printf("%zu of %zu kernels in %.0f s; the model's choice is %.2f%% slower on average\n",
              done, jobs.size(), measure::seconds_since(begin),
              done == 0 ? 0 : 100 * regret / static_cast<double>(done));
}

}  // namespace
}  // namespace coda::table

int main(int argc, char** argv) {
  coda::table::Flags flags;
  CLI::App app("Makes the table of configurations that is shipped");
  app.add_option("file", flags.file, "The table; FILE.jsonl is what was timed so far")
      ->required()
      ->type_name("FILE");
  app.add_option("--cases", flags.cases,
                 "Only cases with this in their name, as \"8B, 4096 tokens\" or \"benchmarks\": "
                 "others are not planned, and keep their rows")
      ->type_name("TEXT");
  app.add_option("--only", flags.only,
                 "Only kernels with this in their class or sizes; others keep their rows")
      ->type_name("TEXT");
  app.add_option("--benchmarks", flags.benchmarks, "The benchmarks' programs")
      ->type_name("FOLDER")
      ->capture_default_str();
  app.add_option("--most", flags.effort.most, "Configurations of a kernel: the best by the model")
      ->check(CLI::Range(1, 200))
      ->capture_default_str();
  app.add_option("--seconds", flags.effort.seconds,
                 "For each of the three fastest, twice; half of it for the others")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  app.add_option("--limit", flags.limit, "Seconds after which no further kernel is timed")
      ->capture_default_str();
  app.add_flag("--list", flags.lists, "Only list what would be timed; needs no GPU");
  CLI11_PARSE(app, argc, argv);
  flags.effort.screen_seconds = flags.effort.seconds / 2;
  try {
    coda::table::run(flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "table_maker: %s\n", error.what());
    return 1;
  }
}
