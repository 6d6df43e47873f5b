// SPDX-License-Identifier: Apache-2.0
// coda emit: the CUDA text of programs, or of all programs of a model's plan, each text once. No
// GPU is needed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <set>

#include "coda/error.h"
#include "commands.h"
#include "explained_plan.h"
#include "hopper/choose_config.h"
#include "hopper/kernel_launch.h"
#include "io/mapped_file.h"
#include "model_flags.h"
#include "train/model_runner.h"

namespace coda::tools {
namespace {

struct EmitFlags {
  std::vector<std::string> programs;
  std::vector<std::string> sizes;
  ModelFlags model;
  int64_t batch = 1;
  int64_t sequence = 2048;
  std::string objective = "memory";
  bool choices = false;
};

// Rows of a plan's matrices are padded to 16 bytes, as its own buffers are.
hopper::LowerOptions lower_options(const Program& program, const DimValues& sizes, bool pads) {
  hopper::LowerOptions options;
  for (const TensorDecl& tensor : program.tensors) {
    int64_t columns = tensor.shape.cols.evaluate(sizes);
    if (tensor.kind == TensorKind::row_partial)
      columns = (columns + kPartialSpan - 1) / kPartialSpan;
    const bool is_matrix = tensor.kind == TensorKind::dense && !tensor.shape.is_vector();
    options.row_strides.push_back(pads && is_matrix ? (columns + 7) / 8 * 8 : columns);
  }
  return options;
}

class Emitter {
 public:
  explicit Emitter(bool lists_choices) : lists_choices_(lists_choices) {}

  void emit(const Program& program, const DimValues& sizes, bool pads) {
    const hopper::LowerOptions options = lower_options(program, sizes, pads);
    if (lists_choices_) {
      for (const hopper::GemmChoice& choice : hopper::legal_choices(program, sizes, options))
        fmt::print("{}: {}\n", program.name, hopper::text(choice));
      return;
    }
    for (const hopper::KernelLaunch& launch : hopper::lower(program, sizes, options)) {
      if (!seen_.insert(launch.source).second) continue;
      fmt::print("// {}: {} CTAs of {} threads in clusters of {}, {} bytes of shared memory\n{}\n",
                 program.name, launch.grid, launch.threads, launch.cluster, launch.shared_bytes,
                 launch.source);
    }
  }

 private:
  const bool lists_choices_;
  std::set<std::string> seen_;
};

void emit_model(const EmitFlags& flags, Emitter& emitter) {
  const ModelConfig config = flags.model.build(flags.sequence);
  train::TaskGraph task = train::make_task(config, {.task = train::Task::gradients,
                                                    .storage = DType::bf16,
                                                    .batch = flags.batch,
                                                    .sequence = flags.sequence});
  CompileOptions options = task.options;
  options.rates = h200_rates();
  options.objective = flags.objective == "speed" ? Objective::speed : Objective::memory;
  const Plan plan = compile(task.model->graph, task.request, options).plan;
  DimValues sizes = options.sizes;
  for (const RowLoop& loop : plan.loops) sizes[loop.symbol] = loop.rows;
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase) {
      const Program* program = std::get_if<Program>(&step.work);
      if (program != nullptr) emitter.emit(*program, sizes, true);
    }
  }
}

void run(const EmitFlags& flags) {
  Emitter emitter(flags.choices);
  if (flags.programs.empty()) {
    require(flags.sizes.empty(), "--sizes are those of program files: name some, or leave it out");
    return emit_model(flags, emitter);
  }
  const DimValues sizes = parse_sizes(flags.sizes);
  for (const std::string& file : flags.programs) {
    try {
      emitter.emit(parse_program(io::read_file(file)), sizes, false);
    } catch (const Error& error) {
      throw Error(file + ": " + error.what());
    }
  }
}

}  // namespace

void add_emit(CLI::App& app) {
  auto flags = std::make_shared<EmitFlags>();
  flags->model.sizes.layers = 1;
  CLI::App& command = *app.add_subcommand(
      "emit", "The CUDA kernels of programs, or of a model's training step in bf16, as text");
  command.add_option("programs", flags->programs, "Files of programs (.coda); none: a model")
      ->type_name("FILE");
  command.add_option("--sizes", flags->sizes, "Sizes of the programs' symbols: M=2048,D=576")
      ->delimiter(',')
      ->type_name("LIST");
  flags->model.add_to(command);
  const auto at_least_1 = CLI::Range(int64_t{1}, int64_t{INT32_MAX});
  command.add_option("--batch", flags->batch, "Sequences")
      ->check(at_least_1)
      ->capture_default_str();
  command.add_option("--sequence", flags->sequence, "Tokens of each")
      ->check(at_least_1)
      ->capture_default_str();
  command.add_option("--objective", flags->objective, "What comes first, saved memory or speed")
      ->check(CLI::IsMember({"memory", "speed"}))
      ->capture_default_str();
  command.add_flag("--choices", flags->choices,
                   "Only list the tiles that the products can be made with, best first");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
