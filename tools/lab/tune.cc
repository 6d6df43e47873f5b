// SPDX-License-Identifier: Apache-2.0
// coda tune: times the configurations of programs' kernels on this GPU, and keeps the result for
// whoever makes these kernels here afterwards. `--table` makes the table that is shipped.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "coda/error.h"
#include "commands.h"
#include "hopper/tuned_file.h"
#include "tune_jobs.h"
#include "tune_table.h"

namespace coda::tools {
namespace {

struct TuneFlags {
  ProgramFlags programs;
  measure::TuneOptions options;
  bool as_json = false;
  bool keeps = true;
  bool lists = false;
  TableFlags table;

  bool makes_table() const { return !table.file.empty(); }
};

void print_header(const TuneGpu& gpu) {
  fmt::print("{}\n", gpu.name());
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

void tune_programs(const TuneFlags& flags, TuneGpu& gpu) {
  hopper::LowerOptions common;
  common.multiprocessors = static_cast<uint32_t>(gpu.state->context->info().multiprocessors);
  common.tuned = hopper::load_tuned_rows(gpu.file);
  const std::vector<measure::TuneJob> jobs = jobs_of(sized_programs(flags.programs), common);
  require(!jobs.empty(), "none of the programs has a product: there is nothing to tune");
  measure::Tuner tuner(gpu.state);
  hopper::TunedRows rows;
  nlohmann::ordered_json all = nlohmann::json::array();
  if (!flags.as_json) print_header(gpu);
  for (const measure::TuneJob& job : jobs) {
    const measure::TunedKernel tuned = tuner.tune(job, flags.options);
    rows.set(tuned.kernel, tuned.choices);
    if (flags.as_json) {
      all.push_back(tuned_json(job, tuned));
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

void list(const TuneFlags& flags) {
  measure::TuneOptions options = flags.options;
  options.is_diverse = flags.makes_table();
  const std::vector<measure::TuneJob> jobs =
      flags.makes_table() ? table_jobs(flags.table) : jobs_of(sized_programs(flags.programs), {});
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
  if (flags.makes_table()) return make_table(flags.table, flags.options);
  TuneGpu gpu;
  tune_programs(flags, gpu);
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
  command
      .add_option(
          "--table", flags->table.file,
          "Make the table that is shipped, as this file; FILE.jsonl is what was timed so far")
      ->type_name("FILE")
      ->group("For the project");
  command
      .add_option("--only", flags->table.only,
                  "Of the table: kernels with this in their class or sizes; others keep their rows")
      ->type_name("TEXT")
      ->group("For the project");
  command
      .add_option("--benchmarks", flags->table.benchmarks,
                  "The benchmarks' programs, for the table")
      ->type_name("FOLDER")
      ->capture_default_str()
      ->group("For the project");
  command.add_option("--limit", flags->table.limit, "Seconds for the table")
      ->capture_default_str()
      ->group("For the project");
  command.callback([flags] {
    flags->options.screen_seconds = flags->options.seconds / 6;
    run(*flags);
  });
}

}  // namespace coda::tools
