// SPDX-License-Identifier: Apache-2.0
// Compiles each file or model to plans for a GPU.
#include "plan_flags.h"

#include <CLI/CLI.hpp>

#include "coda/eight_bits.h"
#include "coda/error.h"
#include "coda/graph_request.h"
#include "coda/model_runner.h"
#include "coda/run_graph.h"
#include "explained_plan.h"
#include "flag_values.h"
#include "program_file.h"

namespace coda::tools {

SizedPlan model_plan(const ModelConfig& config, int64_t batch, int64_t sequence,
                     Recompute recompute, EightBits eight_bits, double expert_capacity,
                     const Rates& rates) {
  ModelTaskGraph task = make_task(config,
                                  {.task = ModelTask::gradients,
                                   .storage = DType::bf16,
                                   .batch = batch,
                                   .sequence = sequence,
                                   .expert_capacity = expert_capacity},
                                  rates);
  task.options.objective = recompute.objective;
  task.options.recomputed_layers = recompute.recomputed_layers;
  task.options.eight_bits = eight_bits;
  return {compile(task.model->graph, task.request, task.options).plan, task.options.sizes};
}

namespace {

// The plan of a graph with its backward, for a GPU.
SizedPlan graph_plan(NamedGraph named, const std::string& file, const DimValues& sizes,
                     const Recompute& recompute, const Rates& rates) {
  refuse_other_sizes(named, sizes);
  for (const std::string& symbol : symbols_of(named)) {
    require(sizes.contains(symbol), file + ": the size " + symbol +
                                        " is not known: give it, as in --sizes " + symbol +
                                        "=1024");
  }
  CompileOptions options;
  options.rates = rates;
  options.sizes = sizes;
  options.storage = usual_storage(named);
  options.objective = recompute.objective;
  options.recomputed_layers = recompute.recomputed_layers;
  const CompileRequest request = graph_request(named, true);
  return {compile(named.graph, request, options).plan, sizes};
}

}  // namespace

ProgramFlags::ProgramFlags() { model.sizes.layers = 1; }

void ProgramFlags::add_to(CLI::App& command) {
  command
      .add_option("programs", files,
                  "Files of programs (.coda), or the file of a graph; none: a model")
      ->type_name("FILE");
  command.add_option("--sizes", sizes, "Sizes of the programs' symbols: M=2048,D=576")
      ->delimiter(',')
      ->type_name("LIST");
  command
      .add_option("--storage", storage,
                  "bf16 or f16: matrices without a type in the files are stored so, because GEMMs "
                  "need 16 bits [as written]")
      ->check(CLI::IsMember({"bf16", "f16"}));
  model.add_to(command);
  const auto at_least_1 = CLI::Range(int64_t{1}, int64_t{INT32_MAX});
  command.add_option("--batch", batch, "Sequences")->check(at_least_1)->capture_default_str();
  command.add_option("--sequence", sequence, "Tokens of each")
      ->check(at_least_1)
      ->capture_default_str();
  command.add_option("--dtype", dtype, "For a model's step: bf16, or a recipe of GEMMs in 8 bits")
      ->check(type_or_recipe({"bf16"}))
      ->capture_default_str();
  add_expert_capacity_flag(command, expert_capacity);
  add_recompute_flag(command, recompute);
  command
      .add_option("--objective", objective,
                  "What to minimise: memory (saved for the backward) or speed (time)")
      ->check(CLI::IsMember({"memory", "speed"}))
      ->capture_default_str();
  gpu.add_to(command, "The card that will run it, by name: rtx4090 (docs/gpus.md) [H200]");
  add_target(command, target);
}

std::vector<SizedPlan> ProgramFlags::plans() const {
  Recompute choice = recompute_of(recompute);
  if (objective == "speed") choice.objective = Objective::speed;
  if (is_model()) {
    require(sizes.empty(), "--sizes are those of program files: name some, or leave it out");
    require(storage.empty(),
            "--storage is of program files (a model's step is in bf16): leave it out");
    return {model_plan(model.build(sequence), batch, sequence, choice, eight_bits_of(dtype),
                       expert_capacity, gpu.rates())};
  }
  const DimValues values = parse_sizes(sizes);
  if (const std::optional<NamedGraph> graph = read_lone_graph(files, storage))
    return {graph_plan(*graph, files.front(), values, choice, gpu.rates())};
  refuse_other_sizes(read_programs_stored_as(files, storage), values);
  std::vector<SizedPlan> result;
  for (const std::string& file : files) {
    const std::vector<Program> programs = read_programs_stored_as({file}, storage);
    try {
      for (const Program& program : programs) {
        require_sizes(program, values);
        result.push_back({one_step_plan(program), values});
      }
    } catch (const Error& error) {
      throw Error(file + ": " + error.what());
    }
  }
  return result;
}

}  // namespace coda::tools
