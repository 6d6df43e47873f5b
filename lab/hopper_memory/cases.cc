// SPDX-License-Identifier: Apache-2.0
#include "cases.h"

#include <set>

#include "coda/backend.h"
#include "coda/compile.h"
#include "coda/plan.h"
#include "gpu/codegen/kernel_names.h"
#include "models/llama.h"

namespace coda::hopper_memory {
namespace {

// Written as a person would; M tokens, N columns.
constexpr const char* kPrograms[] = {
    R"(program copy {
  store(y:bf16, tile(x[M, N]:bf16))
})",
    R"(program copy_fp32 {
  store(y, tile(x[M, N]))
})",
    // Writes alone: how far from a copy, half of whose bytes are written, they are by themselves.
    R"(program only_writes {
  store(y:bf16, per_row(r[M]) * per_column(w[N]))
})",
    R"(program swiglu {
  gate = tile(g[M, N]:bf16)
  store(y:bf16, silu(gate) * tile(u[M, N]:bf16))
})",
    R"(program gelu_fp32 {
  store(y, gelu(tile(x[M, N])) + tile(r[M, N]))
})",
    R"(program add_to_fp32 {
  store(g, tile(g[M, N]) + tile(x[M, N]:bf16) * scalar(s))
})",
    R"(program norm {
  store(y:bf16, tile(x[M, N]:bf16) * per_row(r[M]) * per_column(w[N]))
})",
    R"(program norm_backward {
  x = tile(x[M, N]:bf16)
  dh = tile(dh[M, N]:bf16)
  store(dx:bf16, tile(d[M, N]:bf16) + dh * per_row(r[M]) * per_column(w[N]) + x * per_row(c[M]))
  column_partial(dw, sum(x * dh * per_row(r)))
})",
    R"(program column_sum {
  column_partial(db, sum(tile(dy[M, N]:bf16)))
})",
    R"(program row_lse {
  row_partial(p, log_sum_exp(tile(x[M, N]:bf16)))
})",
    R"(program rope_interleaved {
  a, b = split_pairs(tile(x[M, 4096]:bf16), interleaved)
  c = tile(cos[4096, 64], rows=position[M], repeat=32)
  s = tile(sin[4096, 64], rows=position, repeat=32)
  store(y:bf16, merge_pairs(a * c - b * s, a * s + b * c, interleaved))
})",
    R"(program head_norms {
  x = tile(x[M, 128*H]:bf16)
  r = rsqrt(reduce_group(x * x, 128) * 0.0078125 + 1e-6)
  store(y:bf16, x * repeat_group(r, 128) * per_column(w[128*H]))
})",
    R"(program column_finalizer {
  store(dw, combine_columns(sum(p[M, N])))
})",
    R"(program row_finalizer {
  store(r, rsqrt(combine_rows(sum(p[M, N])) * 0.0001 + 1e-5))
})",
};

// What decides how long a step takes: its text without its own names.
std::string structure_of(const Case& one) {
  const auto* program = std::get_if<Program>(&one.step.work);
  std::string text = program != nullptr ? coda::text(gpu::with_kernel_names(*program))
                                        : std::get<OpaqueCall>(one.step.work).function;
  text = text.substr(text.find('{') == std::string::npos ? 0 : text.find('{'));
  for (const TensorDecl& decl : one.tensors) {
    const PhysicalShape shape = physical_shape(decl, one.sizes);
    text += "\n" + std::to_string(shape.rows) + " " + std::to_string(shape.cols);
  }
  return text;
}

}  // namespace

double Case::bytes() const {
  double total = 0;
  const std::vector<StepTensor> uses = step_tensors(step);
  const auto* call = std::get_if<OpaqueCall>(&step.work);
  const bool looks_up = call != nullptr && call->function == "embedding";
  for (size_t t = 0; t < tensors.size(); ++t) {
    const size_t counted = looks_up && t == 0 ? 2 : t;  // as many rows of the table as are stored
    const PhysicalShape shape = physical_shape(tensors[counted], sizes);
    total += static_cast<double>(shape.rows * shape.cols * size_of(tensors[t].dtype)) *
             ((uses[t].read ? 1 : 0) + (uses[t].written ? 1 : 0));
  }
  return total;
}

std::vector<Case> cases_of(const Plan& plan, const DimValues& sizes, int64_t hidden) {
  std::vector<Case> cases;
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      if (step.role == StepRole::gemm || step.loop >= 0) continue;
      const auto* call = std::get_if<OpaqueCall>(&step.work);
      if (call != nullptr && call->function.starts_with("attention")) continue;
      Case one;
      one.row = step.name;
      one.hidden = hidden;
      one.step = step;
      one.sizes = sizes;
      for (const StepTensor& use : step_tensors(step)) {
        one.tensors.push_back(plan.tensor(use.name).decl);
      }
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

std::vector<Case> model_cases(int64_t hidden) {
  LlamaConfig config;
  config.layers = 1;
  config.hidden = hidden;
  config.heads = hidden / 128;
  config.kv_heads = hidden / 512;
  config.head_dim = 128;
  config.mlp = hidden == 2048 ? 5632 : 11008;
  config.vocab = hidden == 2048 ? 32768 : 128256;
  config.eps = 1e-5;
  const auto model = build(config, {.storage = DType::bf16, .positions = 4096});
  CompileRequest request;
  request.outputs = {{"loss", model->loss}};
  request.seeds = {{model->loss, model->graph.input("scale", {1, 1})}};
  for (const ModelParameter& p : model->parameters) {
    request.gradients.push_back(
        {p.value, "d_" + p.name, p.shape.size() == 1 ? DType::f32 : DType::bf16, false});
  }
  CompileOptions options;
  options.rates = h200_rates();
  options.storage = DType::bf16;
  options.sizes = {{"M", kTokens}, {"T", 4096}};
  options.overwrite_saved = true;  // as in training: one backward for each forward
  const Plan plan = compile(model->graph, request, options).plan;
  std::vector<Case> cases;
  std::set<std::string> known;
  for (Case& one : cases_of(plan, options.sizes, hidden)) {
    one.vocabulary = config.vocab;
    if (known.insert(structure_of(one)).second) cases.push_back(std::move(one));
  }
  return cases;
}

std::vector<Case> other_cases() {
  std::vector<Case> cases;
  for (const char* text : kPrograms) {
    for (const int64_t n : {4096, 11008}) {
      Program program = parse_program(text);
      if (program.name == "rope_interleaved" && n != 4096) continue;  // of one width
      Case one;
      one.row = program.name;
      one.hidden = n;
      one.sizes = {{"M", kTokens}, {"N", n}, {"H", n / 128}};
      one.tensors = program.tensors;
      const bool combines = program.name.ends_with("finalizer");
      // Partials as large as other tensors: 64 times as many lines or rows are reduced.
      if (program.name == "column_finalizer") one.sizes["M"] = kTokens * 32;
      if (program.name == "row_finalizer") one.sizes["N"] = n * 8;
      one.step = {.name = program.name,
                  .role = combines ? StepRole::finalizer : StepRole::tile,
                  .work = program,
                  .reasons = {}};
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

}  // namespace coda::hopper_memory
