// SPDX-License-Identifier: Apache-2.0
// coda tune: times the configurations of programs' kernels on this GPU, and stores the results for
// later compilations on this machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "coda/device.h"
#include "coda/error.h"
#include "coda/kernels.h"
#include "coda/tune.h"
#include "commands.h"
#include "plan_flags.h"

namespace coda::tools {
namespace {

struct TuneFlags {
  ProgramFlags programs;
  TuneOptions options;
  bool as_json = false;
  bool lists = false;
};

void print_line(const TunedKernel& tuned) {
  const TimedConfiguration& best = tuned.configurations.front();
  fmt::print("{:44} {:>26}  {:15} {:10.2f}  {:15} {:10.2f} {:5.1f}%  {}\n",
             tuned.program.substr(0, 44), tuned.extents, tuned.chosen.code,
             tuned.chosen.microseconds, best.code, best.microseconds,
             100 * (tuned.chosen.microseconds / best.microseconds - 1), tuned.chosen_by);
  std::fflush(stdout);
}

nlohmann::ordered_json json_of(const TunedKernel& tuned) {
  nlohmann::ordered_json choices = nlohmann::json::array();
  for (const TimedConfiguration& one : tuned.configurations)
    choices.push_back({{"configuration", one.code}, {"microseconds", one.microseconds}});
  return {{"program", tuned.program},
          {"class", tuned.kernel_class},
          {"extents", tuned.extents},
          {"chosen", tuned.chosen.code},
          {"chosen_by", tuned.chosen_by},
          {"chosen_microseconds", tuned.chosen.microseconds},
          {"choices", choices}};
}

void list(const TuneFlags& flags) {
  size_t kernels = 0;
  for (const SizedPlan& one : flags.programs.plans()) {
    for (const KernelChoice& kernel :
         kernel_choices(one.plan, one.sizes, flags.programs.kernels())) {
      fmt::print("{} | {} | {}\n", kernel.kernel_class, kernel.extents, kernel.program);
      ++kernels;
    }
  }
  fmt::print("{} kernel{}\n", kernels, kernels == 1 ? "" : "s");
}

void run(const TuneFlags& flags) {
  if (flags.lists) return list(flags);
  require(flags.programs.gpu.name.empty(),
          "--gpu is for --list: coda tune times the GPU of this machine");
  ProgramFlags programs = flags.programs;
  if (!programs.is_model()) programs.plans();  // mistakes in files come before a missing GPU
  if (const GpuCard* card = find_gpu_card(describe_gpu())) programs.gpu.name = card->name;
  TuneOptions options = flags.options;
  options.target = flags.programs.target;
  options.says = [](const std::string& what) { fmt::print(stderr, "coda: {}\n", what); };
  nlohmann::ordered_json all = nlohmann::json::array();
  const std::vector<SizedPlan> plans = programs.plans();
  if (!flags.as_json) {
    fmt::print("{}\n{:44} {:>26}  {:15} {:>10}  {:15} {:>10} {:>6}  {}\n", describe_gpu(),
               "program", "extents", "chosen", "us", "fastest", "us", "gain", "chosen by");
    options.done = print_line;
  }
  TuneReport report;
  for (const SizedPlan& one : plans) {
    report = tune(one.plan, one.sizes, options);
    for (const TunedKernel& kernel : report.kernels) all.push_back(json_of(kernel));
  }
  if (flags.as_json) {
    fmt::print("{}\n", all.dump(2));
  } else if (options.keeps) {
    fmt::print("kept in {}\n", report.file.string());
  }
}

}  // namespace

void add_tune(CLI::App& app) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App& command = *app.add_subcommand(
      "tune", "Times configurations of kernels on this GPU, and stores the fastest for later runs");
  flags->programs.add_to(command);
  command
      .add_option("--most", flags->options.most,
                  "Number of configurations to time, the best by the cost model")
      ->check(CLI::Range(1, 200))
      ->capture_default_str();
  command
      .add_option("--seconds", flags->options.seconds,
                  "Seconds for each of the three fastest, twice; a sixth of this for the others")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  command.add_flag("--json", flags->as_json, "Print one JSON object a kernel");
  command.add_flag("!--no-keep", flags->options.keeps,
                   "Print the measurements and do not store them");
  command.add_flag("--list", flags->lists, "Only list what would be timed; needs no GPU");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
