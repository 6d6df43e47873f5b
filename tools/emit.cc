// SPDX-License-Identifier: Apache-2.0
// coda emit: prints the CUDA text of programs, or of all programs of a model's plan, without
// duplicates. Needs no GPU.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <set>

#include "coda/kernels.h"
#include "commands.h"
#include "plan_flags.h"

namespace coda::tools {
namespace {

struct EmitFlags {
  ProgramFlags programs;
  bool choices = false;
};

// Prints the choice for each GEMM kernel and its source, then all other choices in the model's
// order.
void print_choices(const EmitFlags& flags) {
  for (const SizedPlan& one : flags.programs.plans()) {
    for (const KernelChoice& kernel :
         kernel_choices(one.plan, one.sizes, flags.programs.kernels())) {
      fmt::print("{}: {}, from {}\n  class {}, extents {}\n", kernel.program, kernel.chosen,
                 kernel.chosen_by, kernel.kernel_class, kernel.extents);
      for (const std::string& ranked : kernel.ranked) fmt::print("  {}\n", ranked);
    }
  }
}

void run(const EmitFlags& flags) {
  if (flags.choices) return print_choices(flags);
  std::set<std::string> seen;
  for (const SizedPlan& one : flags.programs.plans()) {
    std::string note;
    for (const KernelText& kernel : emit_kernels(one.plan, one.sizes, flags.programs.kernels())) {
      if (kernel.note != note) fmt::print("// {}\n", note = kernel.note);
      if (!seen.insert(kernel.source).second) continue;
      fmt::print("// {}: {} CTAs of {} threads in clusters of {}, {} bytes of shared memory\n{}\n",
                 kernel.program, kernel.grid, kernel.threads, kernel.cluster, kernel.shared_bytes,
                 kernel.source);
    }
  }
}

}  // namespace

void add_emit(CLI::App& app) {
  auto flags = std::make_shared<EmitFlags>();
  CLI::App& command = *app.add_subcommand(
      "emit", "The CUDA kernels of programs, or of a model's training step in bf16, as text");
  flags->programs.add_to(command);
  command.add_flag("--choices", flags->choices,
                   "Only list the configurations of each GEMM: the chosen one and why, then all, "
                   "in the order of the cost model");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
