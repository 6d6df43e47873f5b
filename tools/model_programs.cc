// SPDX-License-Identifier: Apache-2.0
#include "model_programs.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "coda/error.h"
#include "coda/model_runner.h"
#include "explained_plan.h"
#include "hopper/operation_launches.h"
#include "program_file.h"

namespace coda::tools {
namespace {

// Rows of a plan's matrices are padded to 16 bytes, as its own buffers are.
std::vector<int64_t> row_strides(const Program& program, const DimValues& sizes, bool pads) {
  std::vector<int64_t> strides;
  for (const TensorDecl& tensor : program.tensors) {
    int64_t columns = tensor.shape.cols.evaluate(sizes);
    if (tensor.kind == TensorKind::row_partial)
      columns = (columns + kPartialSpan - 1) / kPartialSpan;
    const bool is_matrix = tensor.kind == TensorKind::dense && !tensor.shape.is_vector();
    strides.push_back(pads && is_matrix ? (columns + 7) / 8 * 8 : columns);
  }
  return strides;
}

}  // namespace

SizedProgram sized_program(const Program& program, const DimValues& sizes, bool pads) {
  SizedProgram result{program, sizes, {}};
  result.options.row_strides = row_strides(program, sizes, pads);
  return result;
}

ModelPrograms model_programs(const ModelConfig& config, int64_t batch, int64_t sequence,
                             Objective objective) {
  ModelTaskGraph task = make_task(
      config,
      {.task = ModelTask::gradients, .storage = DType::bf16, .batch = batch, .sequence = sequence});
  CompileOptions options = task.options;
  options.rates = h200_rates();
  options.objective = objective;
  ModelPrograms result{compile(task.model->graph, task.request, options).plan, options.sizes, {}};
  for (const auto* phase : {&result.plan.forward, &result.plan.backward}) {
    for (const PlanStep& step : *phase) {
      DimValues sizes = result.sizes;
      if (step.loop >= 0) {
        const RowLoop& loop = result.plan.loops[step.loop];
        sizes[loop.symbol] = std::min(loop.rows, sizes[loop.symbol]);
      }
      if (const Program* program = std::get_if<Program>(&step.work))
        result.programs.push_back(sized_program(*program, sizes, true));
      if (step.later) result.programs.push_back(sized_program(*step.later, sizes, true));
    }
  }
  return result;
}

std::vector<hopper::KernelLaunch> opaque_launches(const ModelPrograms& model) {
  std::vector<hopper::KernelLaunch> launches;
  for (const auto* phase : {&model.plan.forward, &model.plan.backward}) {
    for (const PlanStep& step : *phase) {
      const auto* call = std::get_if<OpaqueCall>(&step.work);
      if (call == nullptr) continue;
      std::vector<TensorDecl> tensors;
      for (const auto* names : {&call->inputs, &call->outputs})
        for (const std::string& name : *names) tensors.push_back(model.plan.tensor(name).decl);
      for (hopper::KernelLaunch& launch : hopper::lower_call(*call, tensors, model.sizes, {}))
        launches.push_back(std::move(launch));
    }
  }
  return launches;
}

ProgramFlags::ProgramFlags() { model.sizes.layers = 1; }

void ProgramFlags::add_to(CLI::App& command) {
  command.add_option("programs", files, "Files of programs (.coda); none: a model")
      ->type_name("FILE");
  command.add_option("--sizes", sizes, "Sizes of the programs' symbols: M=2048,D=576")
      ->delimiter(',')
      ->type_name("LIST");
  command
      .add_option("--storage", storage,
                  "bf16 or f16: matrices that are fp32 in the files are stored so, as products "
                  "need it [as written]")
      ->check(CLI::IsMember({"bf16", "f16"}));
  model.add_to(command);
  const auto at_least_1 = CLI::Range(int64_t{1}, int64_t{INT32_MAX});
  command.add_option("--batch", batch, "Sequences")->check(at_least_1)->capture_default_str();
  command.add_option("--sequence", sequence, "Tokens of each")
      ->check(at_least_1)
      ->capture_default_str();
  command.add_option("--objective", objective, "What comes first, saved memory or speed")
      ->check(CLI::IsMember({"memory", "speed"}))
      ->capture_default_str();
}

std::vector<SizedProgram> ProgramFlags::programs() const {
  if (is_model()) return of_model().programs;
  const DimValues values = parse_sizes(sizes);
  std::vector<Program> read;
  for (const std::string& file : files) {
    read.push_back(read_program(file));
    if (storage.empty()) continue;
    read.back() = stored_as(std::move(read.back()), storage == "f16" ? DType::f16 : DType::bf16);
  }
  refuse_other_sizes(read, values);
  std::vector<SizedProgram> result;
  for (size_t i = 0; i < files.size(); ++i) {
    try {
      require_sizes(read[i], values);
      result.push_back(sized_program(read[i], values, false));
    } catch (const Error& error) {
      throw Error(files[i] + ": " + error.what());
    }
  }
  return result;
}

ModelPrograms ProgramFlags::of_model() const {
  require(sizes.empty(), "--sizes are those of program files: name some, or leave it out");
  require(storage.empty(),
          "--storage is of program files (a model's step is in bf16): leave it out");
  return model_programs(model.build(sequence), batch, sequence,
                        objective == "speed" ? Objective::speed : Objective::memory);
}

}  // namespace coda::tools
