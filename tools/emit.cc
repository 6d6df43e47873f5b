// SPDX-License-Identifier: Apache-2.0
// coda emit: the CUDA text of programs, or of all programs of a model's plan, each text once. No
// GPU is needed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <set>

#include "commands.h"
#include "hopper/gemm_program.h"
#include "hopper/lower_parts.h"
#include "hopper/tuned_file.h"
#include "model_programs.h"

namespace coda::tools {
namespace {

struct EmitFlags {
  ProgramFlags programs;
  bool choices = false;
};

// The choice of each kernel with products and why, then all others, as the model ranks them.
void list_choices(const Program& whole, const DimValues& sizes,
                  const hopper::LowerOptions& options) {
  const hopper::GemmProgram program(whole, sizes, options);
  for (size_t kernel = 0; kernel < program.kernels(); ++kernel) {
    const hopper::ChosenConfig chosen = program.chosen(kernel);
    const hopper::KernelClass own = program.class_of(kernel);
    fmt::print("{}: {}, from {}\n", whole.name, hopper::text(chosen.choice), hopper::text(chosen));
    fmt::print("  class {}, extents {}\n", own.name, hopper::text(own.extents));
    for (const hopper::RankedChoice& ranked : program.ranked(kernel))
      fmt::print("  {}\n", hopper::text(ranked.choice));
  }
}

void run(const EmitFlags& flags) {
  std::set<std::string> seen;
  const auto tuned =
      hopper::load_tuned_rows(hopper::latest_tuned_file(hopper::default_cache_folder()));
  for (SizedProgram& one : flags.programs.programs()) {
    one.options.tuned = tuned;
    if (flags.choices) {
      for (const hopper::LoweredPart& part :
           hopper::parts_of(one.program, one.sizes, one.options)) {
        list_choices(part.part.program, one.sizes, part.options);
      }
      continue;
    }
    std::string note;
    for (const hopper::KernelLaunch& launch : hopper::lower(one.program, one.sizes, one.options)) {
      if (launch.note != note) fmt::print("// {}\n", note = launch.note);
      if (!seen.insert(launch.source).second) continue;
      fmt::print("// {}: {} CTAs of {} threads in clusters of {}, {} bytes of shared memory\n{}\n",
                 one.program.name, launch.grid, launch.threads, launch.cluster, launch.shared_bytes,
                 launch.source);
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
                   "Only list the tiles that the products can be made with: which is taken and "
                   "why, then all, best first by the model");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
