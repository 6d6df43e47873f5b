// SPDX-License-Identifier: Apache-2.0
// The blocks and models whose plans run on a GPU in tests, their sizes, the caller's tensors of a
// session in the GPU's memory, and what their results are compared with.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/relative_error.h"
#include "coda/device.h"
#include "cpu/plan_run.h"
#include "plan/blocks.h"

namespace coda::tests {

struct PlanCase {
  const char* name;
  std::function<void(Block&, const LlamaSizes&)> build;
};

inline const std::vector<PlanCase>& plan_cases() {
  static const std::vector<PlanCase> all{
      {"llama_block", [](Block& b, const LlamaSizes& s) { llama_block(b, s); }},
      {"llama_model", [](Block& b, const LlamaSizes& s) { llama_model(b, 2, true, s); }},
      {"gpt2_model", [](Block& b, const LlamaSizes& s) { gpt2_model(b, 2, s); }},
      {"parallel_block", [](Block& b, const LlamaSizes& s) { parallel_block(b, s); }},
      {"sandwich_block", [](Block& b, const LlamaSizes& s) { sandwich_block(b, s); }},
  };
  return all;
}

struct ModelSizes {
  LlamaSizes model;
  int64_t tokens = 0;
};

// Of which none but the heads' is a multiple of a tile, nor of what the copy engine addresses.
inline ModelSizes ragged_sizes() {
  return {.model = {.hidden = 72,
                    .heads = 3,
                    .kv_heads = 1,
                    .head_dim = 32,
                    .mlp = 100,
                    .vocab = 67,
                    .sequence = 10},
          .tokens = 70};
}

// Such as a model has.
inline ModelSizes even_sizes() {
  return {.model = {.hidden = 256,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 64,
                    .mlp = 344,
                    .vocab = 504,
                    .sequence = 20},
          .tokens = 160};
}

inline DimValues dims_of(const ModelSizes& sizes) { return {{"M", sizes.tokens}}; }

// `b` is filled with the block's graph and request.
inline Plan plan_of(const PlanCase& c, const ModelSizes& sizes, DType storage, Block& b,
                    Objective objective = Objective::memory) {
  b.storage = storage;
  c.build(b, sizes.model);
  CompileOptions options;
  options.sizes = dims_of(sizes);
  options.storage = storage;
  options.rates = h200_rates();
  options.objective = objective;
  return compile(b.graph, b.request, options).plan;
}

// Indices stay below 16, of which every table has as many rows.
inline Values model_inputs(const Block& b, const ModelSizes& sizes, uint64_t seed) {
  return realistic_inputs(b, dims_of(sizes), seed, 16);
}

// The caller's tensors of a session: inputs on the device, outputs there and on the host. Outputs
// that are the session's own are only on the host.
class BoundTensors {
 public:
  BoundTensors(Session& session, const Values& inputs, const Stream& stream)
      : session_(session), stream_(stream) {
    for (const PlanTensor& t : session.plan().tensors) {
      const bool is_callers = t.role == TensorRole::input || t.role == TensorRole::parameter ||
                              t.role == TensorRole::output;
      if (!is_callers || !t.view_of.empty()) continue;
      const std::string& name = t.decl.name;
      const PhysicalShape shape = physical_shape(t.decl, session.sizes());
      const auto given = inputs.find(name);
      host_.put(name, t.decl.dtype,
                given != inputs.end()
                    ? given->second
                    : std::vector<double>(static_cast<size_t>(shape.rows * shape.cols), NAN));
      if (session.owns(name)) {
        own_.push_back(name);
        continue;
      }
      DeviceTensor& tensor = on_device_[name] =
          DeviceTensor(t.decl.dtype, shape.rows, shape.cols, stream);
      if (t.role == TensorRole::output) {
        outputs_.push_back(name);
      } else {
        tensor.upload(on_host(name), stream);
      }
      session.bind(name, tensor.view());
    }
  }

  void poison_outputs() {
    for (const std::string& name : outputs_) on_device_.at(name).fill_bytes(0xff, stream_);
  }

  // Waits; what the session has written, with the inputs.
  Tensors download() {
    for (const std::string& name : outputs_) on_device_.at(name).download(on_host(name), stream_);
    for (const std::string& name : own_) {
      TensorView host = session_.view(name);
      host.data = host_.data(name);
      host.row_stride = host.cols;
      coda::download(session_.view(name), host, stream_);
    }
    stream_.synchronize();
    return host_;
  }

  const std::vector<std::string>& outputs() const { return outputs_; }
  const std::vector<std::string>& own() const { return own_; }

 private:
  TensorView on_host(const std::string& name) {
    TensorView view = on_device_.at(name).view();
    view.data = host_.data(name);
    return view;
  }

  Session& session_;
  Stream stream_;
  Tensors host_;
  std::map<std::string, DeviceTensor> on_device_;
  std::vector<std::string> outputs_;
  std::vector<std::string> own_;
};

inline void run_both_phases(Session& session) {
  session.forward();
  if (!session.plan().backward.empty()) session.backward();
}

// Plans on the GPU against the same plan on the CPU, in float64's eyes: both store the same tensors
// in 16 bits, so that they differ by about as much as the CPU's do from the exact result.
inline void expect_as_on_the_cpu(const Tensors& on_gpu, const Plan& plan, const Block& b,
                                 const Values& inputs, const DimValues& sizes) {
  const Tensors on_cpu = run(plan, sizes, inputs, 2);
  for (const auto& [name, exact] : plain_values(b.graph, b.request, inputs, sizes)) {
    const std::vector<double> reference = on_cpu.get(name);
    EXPECT_LE(relative_error(on_gpu.get(name), reference),
              4 * relative_error(reference, exact) + 1e-5)
        << name;
  }
}

// Names of the tensors of which a byte differs.
inline std::vector<std::string> different(const Tensors& a, const Tensors& b) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : a.bytes())
    if (bytes != b.bytes().at(name)) names.push_back(name);
  return names;
}

}  // namespace coda::tests
