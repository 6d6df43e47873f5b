// SPDX-License-Identifier: Apache-2.0
#include "lab/table/table_cases.h"

#include <algorithm>

#include "base/rounding.h"
#include "coda/compile.h"
#include "coda/model_runner.h"
#include "coda/program_file.h"
#include "program/step_table.h"

namespace coda::table {
namespace {

constexpr int64_t kLayers = 2;  // further ones have the same programs

LlamaConfig llama(int64_t hidden, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t mlp,
                  int64_t vocab) {
  LlamaConfig config;
  config.layers = kLayers;
  config.hidden = hidden;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.mlp = mlp;
  config.vocab = vocab;
  config.tied = false;
  return config;
}

Gpt2Config gpt2(int64_t hidden, int64_t heads) {
  Gpt2Config config;
  config.layers = kLayers;
  config.hidden = hidden;
  config.heads = heads;
  config.mlp = 4 * hidden;
  config.vocab = 50257;
  return config;
}

// Sequences as long as models are trained on, and shorter where there are fewer tokens.
ModelConfig for_sequence(ModelConfig config, int64_t sequence) {
  if (auto* own = std::get_if<LlamaConfig>(&config)) own->max_positions = sequence;
  if (auto* own = std::get_if<Gpt2Config>(&config)) own->positions = sequence;
  return config;
}

struct TableModel {
  std::string name;
  ModelConfig config;
};
const std::vector<TableModel>& table_models() {
  static const std::vector<TableModel> models = {
      {"hidden 2048", llama(2048, 16, 16, 128, 5632, 32768)},
      {"hidden 4096", llama(4096, 32, 32, 128, 11008, 32768)},
      {"hidden 8192", llama(8192, 64, 64, 128, 22016, 32768)},
      {"LLaMA-3 8B", llama(4096, 32, 8, 128, 14336, 128256)},
      {"LLaMA-3 1B", llama(2048, 32, 8, 64, 8192, 128256)},
      {"LLaMA-3 70B", llama(8192, 64, 8, 128, 28672, 128256)},
      {"Qwen3 8B", llama(4096, 32, 8, 128, 12288, 151936)},
      {"Qwen3 0.6B", llama(1024, 16, 8, 128, 3072, 151936)},
      {"Qwen3 4B", llama(2560, 32, 8, 128, 9728, 151936)},
      {"Qwen3 32B", llama(5120, 64, 8, 128, 25600, 151936)},
      {"GPT-2 small", gpt2(768, 12)},
      {"GPT-2 medium", gpt2(1024, 16)},
      {"GPT-2 large", gpt2(1280, 20)},
      {"GPT-2 xl", gpt2(1600, 25)}};
  return models;
}

SizedProgram sized_program(const Program& program, const DimValues& sizes) {
  SizedProgram result{program, sizes, {}};
  for (const TensorDecl& tensor : program.tensors) {
    const int64_t columns = physical_shape(tensor, sizes).cols;
    const bool is_matrix = tensor.kind == TensorKind::dense && !tensor.shape.is_vector();
    result.row_strides.push_back(is_matrix ? round_up(columns, 8) : columns);
  }
  return result;
}

// Those with products of a training step; of a loop over blocks of rows, at the sizes of its first.
std::vector<SizedProgram> model_programs(const ModelConfig& config, int64_t tokens,
                                         EightBits eight_bits) {
  const int64_t sequence = std::min<int64_t>(tokens, 4096);
  ModelTaskGraph task = make_task(for_sequence(config, sequence),
                                  {.task = ModelTask::gradients,
                                   .storage = DType::bf16,
                                   .batch = tokens / sequence,
                                   .sequence = sequence},
                                  h200_rates());
  task.options.objective = Objective::memory;
  task.options.eight_bits = eight_bits;
  const Plan plan = compile(task.model->graph, task.request, task.options).plan;
  std::vector<SizedProgram> programs;
  const auto add = [&](const Program& program, const DimValues& sizes) {
    if (program::has_product(program)) programs.push_back(sized_program(program, sizes));
  };
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase) {
      DimValues sizes = task.options.sizes;
      if (step.loop >= 0) {
        const RowBlocks& loop = plan.loops[static_cast<size_t>(step.loop)];
        sizes[loop.symbol] = std::min(loop.rows, sizes[loop.symbol]);
      }
      if (const Program* program = std::get_if<Program>(&step.work)) add(*program, sizes);
      if (step.later) add(*step.later, sizes);
    }
  }
  return programs;
}

std::vector<SizedProgram> benchmark_programs(const std::string& folder) {
  constexpr int64_t kTokens = 16384;
  constexpr int64_t kPositions = 4096;
  std::vector<SizedProgram> programs;
  const auto add = [&](const std::string& file, const DimValues& sizes) {
    programs.push_back(sized_program(read_program(folder + "/" + file + ".coda"), sizes));
  };
  struct Sizes {
    int64_t hidden;
    int64_t mlp;
  };
  for (const auto& [d, i] : {Sizes{2048, 5632}, Sizes{4096, 11008}, Sizes{8192, 22016}}) {
    const auto add_nk = [&](const std::string& file, int64_t n, int64_t k) {
      add(file, {{"M", kTokens}, {"N", n}, {"K", k}});
    };
    for (const char* product : {"product_tn", "product_nn"}) add_nk(product, d, d);
    add_nk("residual_norm", d, d);
    add_nk("residual_norm", d, i);
    add_nk("swiglu", i, d);
    add("rope", {{"M", kTokens}, {"H", d / 128}, {"K", d}, {"S", kPositions}});
    if (d <= 4096) {
      for (const int64_t vocabulary : {32768, 128256}) add_nk("loss", vocabulary, d);
    }
    for (const int64_t k : {d, 3 * d, 2 * i}) add_nk("norm_backward", d, k);
    add_nk("swiglu_backward", i, d);
    for (const char* gradient : {"product_nt", "weight_gradient"})
      add(gradient, {{"M", d}, {"N", d}, {"K", kTokens}});
  }
  return programs;
}

}  // namespace

std::vector<TableCase> model_cases(int64_t tokens) {
  std::vector<TableCase> cases;
  for (const TableModel& model : table_models()) {
    cases.push_back({model.name + ", " + std::to_string(tokens) + " tokens", [&model, tokens] {
                       return model_programs(model.config, tokens, EightBits::none);
                     }});
  }
  return cases;
}

// Of these two models also with products in 8 bits, whose epilogues are others.
std::vector<TableCase> eight_bit_cases() {
  std::vector<TableCase> cases;
  for (const TableModel& model : table_models()) {
    const bool is_1b = model.name == "LLaMA-3 1B";
    if (!is_1b && model.name != "LLaMA-3 8B") continue;
    for (const int64_t tokens : {is_1b ? 32768 : 16384, 4096}) {
      cases.push_back(
          {model.name + " in 8 bits, " + std::to_string(tokens) + " tokens",
           [&model, tokens] { return model_programs(model.config, tokens, EightBits::fp8); }});
    }
  }
  return cases;
}

std::vector<TableCase> table_cases(const std::string& benchmarks) {
  std::vector<TableCase> cases{
      {"benchmarks", [benchmarks] { return benchmark_programs(benchmarks); }}};
  for (const int64_t tokens : {16384, 4096, 1024}) {
    for (TableCase& one : model_cases(tokens)) cases.push_back(std::move(one));
  }
  for (TableCase& one : eight_bit_cases()) cases.push_back(std::move(one));
  return cases;
}

std::vector<measure::TuneJob> jobs_of(const std::vector<TableCase>& cases, const std::string& text,
                                      bool uses_table) {
  std::vector<measure::TuneJob> jobs;
  for (const TableCase& one : cases) {
    if (one.name.find(text) == std::string::npos) continue;
    for (const SizedProgram& sized : one.programs()) {
      gpu::LowerOptions options;
      options.row_strides = sized.row_strides;
      options.uses_table = uses_table;
      for (measure::TuneJob& job : measure::tune_jobs(sized.program, sized.sizes, options))
        jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

}  // namespace coda::table
