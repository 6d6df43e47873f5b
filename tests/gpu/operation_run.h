// SPDX-License-Identifier: Apache-2.0
// Runs the kernels of an operation's call on the CPU (host_kernel.h) and its definition in float64
// from the same rounded values. Every tensor lies between guards, and results and scratch memory
// are NaN before.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/relative_error.h"
#include "gpu/host_run.h"
#include "gpu/launch/operation_launches.h"
#include "operations/document_spans.h"
#include "runtime/operation_call.h"

namespace coda::gpu::of_calls {

using Numbers = std::map<std::string, std::vector<double>>;

struct CallTensor {
  std::string name;
  int64_t rows, cols;
  DType type;
  TensorDecl decl() const { return {name, {rows, cols}, type, TensorKind::dense, 1}; }
};

inline std::vector<KernelLaunch> launches_of(const OpaqueCall& call,
                                             const std::vector<CallTensor>& tensors,
                                             int64_t gap = 0, LowerOptions options = {}) {
  std::vector<TensorDecl> decls;
  for (const CallTensor& t : tensors) {
    decls.push_back(t.decl());
    options.row_strides.push_back(t.cols == 1 ? 1 : t.cols + gap);
  }
  return lower_call(call, decls, {}, options);
}

// The results of the call's kernels. Operands in `numbers` are replaced by their rounded values.
inline Numbers results_of_kernels(const OpaqueCall& call, const std::vector<CallTensor>& tensors,
                                  Numbers& numbers, HostRows rows = {3},
                                  LowerOptions options = {}) {
  std::vector<HostTensor> memory;
  std::vector<void*> addresses;
  std::vector<int64_t> strides;
  std::vector<TensorDecl> decls;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const CallTensor& t = tensors[i];
    memory.emplace_back(t.decl(), DimValues{}, rows);
    if (i < call.inputs.size()) {
      memory.back().fill(numbers.at(t.name));
      numbers[t.name] = memory.back().values();
    }
    decls.push_back(t.decl());
    strides.push_back(memory.back().stride());
  }
  for (HostTensor& tensor : memory) addresses.push_back(tensor.data());
  options.row_strides = strides;
  const std::vector<KernelLaunch> launches = lower_call(call, decls, {}, options);
  std::vector<std::vector<char>> scratch;
  for (const ScratchTensor& tensor : launches.at(0).scratch) {
    scratch.emplace_back(tensor.rows * tensor.row_stride * size_of(tensor.dtype), '\xff');
    addresses.push_back(scratch.back().data());
    strides.push_back(tensor.row_stride);
  }
  for (const KernelLaunch& launch : launches) HostKernel(launch).run(addresses, strides);
  Numbers results;
  for (size_t i = 0; i < tensors.size(); ++i) {
    memory[i].check_guards();
    if (i >= call.inputs.size()) results[tensors[i].name] = memory[i].values();
  }
  return results;
}

// The results of the call's definition.
inline Numbers results_of_definition(const OpaqueCall& call, const std::vector<CallTensor>& tensors,
                                     const Numbers& numbers) {
  std::vector<std::vector<double>> exact;
  std::vector<TensorView> views;
  std::vector<TensorDecl> decls;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const CallTensor& t = tensors[i];
    exact.push_back(i < call.inputs.size() ? numbers.at(t.name)
                                           : std::vector<double>(t.rows * t.cols));
    decls.push_back(t.decl());
    decls.back().dtype = DType::f64;
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    views.push_back(dense_view(exact[i].data(), DType::f64, tensors[i].rows, tensors[i].cols));
  prepare_reference_call(call, decls, {})->run(views);
  Numbers results;
  for (size_t i = call.inputs.size(); i < tensors.size(); ++i) results[tensors[i].name] = exact[i];
  return results;
}

// relative_error() of numbers among which there may be equal infinities.
inline double error_of(std::vector<double> found, std::vector<double> wanted) {
  for (size_t i = 0; i < wanted.size(); ++i)
    if (std::isinf(wanted[i]) && found[i] == wanted[i]) found[i] = wanted[i] = 0;
  return relative_error(found, wanted);
}

// Compares the two, and leaves the definition's results in `numbers`.
inline void expect_right(const OpaqueCall& call, const std::vector<CallTensor>& tensors,
                         Numbers& numbers, double tolerance) {
  const Numbers results = results_of_kernels(call, tensors, numbers);
  for (const auto& [name, exact] : results_of_definition(call, tensors, numbers)) {
    EXPECT_LT(error_of(results.at(name), exact), tolerance) << call.function << ": " << name;
    numbers[name] = exact;
  }
}

inline std::vector<double> random_values(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& v : values) v = normal(random);
  return values;
}

struct AttentionCase {
  int64_t sequences, tokens, heads, kv_heads, head_dim, value_dim;
  bool causal;
  int64_t window;
  double soft_cap;
  DType type = DType::f32;
  // Lengths of documents, which follow each other in each sequence, in each from the next on; what
  // is behind them sees nothing. Empty: the call has no documents.
  std::vector<int64_t> documents = {};
  bool sinks = false;
  bool padded = false;  // `documents` are lengths of tokens that are seen and hidden in turns

  std::vector<CallTensor> tensors(bool backward) const {
    const int64_t rows = sequences * tokens;
    const CallTensor q{"q", rows, heads * head_dim, type}, k{"k", rows, kv_heads * head_dim, type},
        v{"v", rows, kv_heads * value_dim, type}, y{"y", rows, heads * value_dim, type},
        lse{"lse", rows, heads, DType::f32};
    const auto gradient = [](CallTensor t) {
      t.name = "d" + t.name;
      return t;
    };
    std::vector<CallTensor> all{q, k, v};
    if (backward) all.insert(all.end(), {y, lse, gradient(y)});
    if (!documents.empty()) all.push_back({"documents", rows, padded ? 4 : 2, DType::i32});
    const CallTensor of_sinks{"sinks", 1, heads, DType::f32};
    if (sinks) all.push_back(of_sinks);
    if (!backward)
      all.insert(all.end(), {y, lse});
    else
      all.insert(all.end(), {gradient(q), gradient(k), gradient(v)});
    if (backward && sinks) all.push_back(gradient(of_sinks));
    return all;
  }
  // Values of all tensors: random ones but for documents.
  Numbers numbers(uint64_t seed) const {
    Numbers all;
    for (const CallTensor& t : tensors(true))
      all[t.name] = t.name != "documents" ? random_values(t.rows * t.cols, seed++)
                    : padded ? padding_spans<double>(documents, t.rows, tokens, causal, window)
                             : document_spans<double>(documents, t.rows, tokens);
    return all;
  }
  OpaqueCall call(bool backward) const {
    OpaqueCall call{backward ? "attention_backward" : "attention",
                    {{"heads", heads},
                     {"kv_heads", kv_heads},
                     {"head_dim", head_dim},
                     {"value_dim", value_dim},
                     {"scale", 0.3},
                     {"causal", causal},
                     {"window", padded ? 0 : window},
                     {"soft_cap", soft_cap},
                     {"documents", documents.empty() ? 0 : 1},
                     {"key_spans", padded},
                     {"sinks", sinks ? 1 : 0}},
                    {{"sequence", tokens}},
                    {},
                    {}};
    const size_t operands = (backward ? 6 : 3) + (documents.empty() ? 0 : 1) + (sinks ? 1 : 0);
    for (const CallTensor& t : tensors(backward))
      (call.inputs.size() < operands ? call.inputs : call.outputs).push_back(t.name);
    return call;
  }
};

}  // namespace coda::gpu::of_calls
