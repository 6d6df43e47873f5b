// SPDX-License-Identifier: Apache-2.0
// Runs a plan on the CPU backend with poisoned memory, and compares its errors with those of the
// plain computation one framework operation at a time.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "coda/float16.h"
#include "coda/session.h"
#include "cpu/cpu_backend.h"
#include "cpu/op_by_op.h"
#include "plan/plain_graph.h"

namespace coda {

// Memory of the caller's tensors in their storage types.
class Tensors {
 public:
  void put(const std::string& name, DType type, const std::vector<double>& data) {
    std::vector<std::byte>& bytes = bytes_[name];
    bytes.resize(data.size() * static_cast<size_t>(size_of(type)));
    types_[name] = type;
    for (size_t i = 0; i < data.size(); ++i) {
      const auto x = static_cast<float>(data[i]);
      if (type == DType::f32) reinterpret_cast<float*>(bytes.data())[i] = x;
      if (type == DType::bf16) reinterpret_cast<uint16_t*>(bytes.data())[i] = bf16_from_float(x);
      if (type == DType::f16) reinterpret_cast<uint16_t*>(bytes.data())[i] = f16_from_float(x);
      if (type == DType::i32)
        reinterpret_cast<int32_t*>(bytes.data())[i] = static_cast<int32_t>(data[i]);
    }
  }
  std::vector<double> get(const std::string& name) const {
    const std::vector<std::byte>& bytes = bytes_.at(name);
    const DType type = types_.at(name);
    std::vector<double> data(bytes.size() / static_cast<size_t>(size_of(type)));
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = type == DType::f32 ? reinterpret_cast<const float*>(bytes.data())[i]
                : type == DType::bf16
                    ? float_from_bf16(reinterpret_cast<const uint16_t*>(bytes.data())[i])
                : type == DType::f16
                    ? float_from_f16(reinterpret_cast<const uint16_t*>(bytes.data())[i])
                    : reinterpret_cast<const int32_t*>(bytes.data())[i];
    }
    return data;
  }
  void* data(const std::string& name) { return bytes_.at(name).data(); }
  const std::map<std::string, std::vector<std::byte>>& bytes() const { return bytes_; }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, DType> types_;
};

// Runs the plan; outputs and gradients by name.
inline Tensors run(const Plan& plan, const DimValues& sizes, const Values& inputs, int threads) {
  auto backend = cpu::make_cpu_backend({.threads = threads});
  Session session(plan, *backend, sizes, {.timing = false, .poison = true});
  Tensors tensors;
  for (const PlanTensor& t : plan.tensors) {
    const bool callers = t.role == TensorRole::input || t.role == TensorRole::parameter ||
                         t.role == TensorRole::output;
    if (!callers || !t.view_of.empty()) continue;
    const int64_t rows = t.decl.shape.rows.evaluate(sizes);
    const int64_t cols = t.decl.shape.cols.evaluate(sizes);
    auto given = inputs.find(t.decl.name);
    tensors.put(t.decl.name, t.decl.dtype,
                given != inputs.end() ? given->second
                                      : std::vector<double>(static_cast<size_t>(rows * cols), NAN));
    session.bind(t.decl.name, dense_view(tensors.data(t.decl.name), t.decl.dtype, rows, cols));
  }
  session.forward();
  session.backward();
  return tensors;
}

// Random inputs as a model has them: unit activations, weights scaled by their depth, norms near 1,
// biases near 0, rotation tables.
inline Values realistic_inputs(const Block& b, const DimValues& sizes, uint64_t seed,
                               int64_t limit) {
  Values inputs = random_inputs(b.graph, sizes, seed, limit);
  for (int id = 0; id < b.graph.size(); ++id) {
    const Node& n = b.graph.node(id);
    if (n.op != Op::input) continue;
    std::vector<double>& data = inputs[n.name];
    const bool norm = n.kind == InputKind::parameter && n.shape.is_vector();
    const bool weight = n.kind == InputKind::parameter && !norm;
    const auto depth = static_cast<double>(std::max<int64_t>(1, n.shape.cols.evaluate(sizes)));
    for (size_t i = 0; i < data.size(); ++i) {
      double& x = data[i];
      if (norm) x = (n.name.ends_with(".b") ? 0 : 1) + 0.1 * x;
      if (weight) x /= std::sqrt(depth);
      const double angle = 0.37 * static_cast<double>(i);
      if (n.name == "cos") x = std::cos(angle);
      if (n.name == "sin") x = std::sin(angle);
      if (n.name == "scale") x = 1;
      if (n.dtype != DType::i32) {
        const auto single = static_cast<float>(x);
        x = n.dtype == DType::bf16  ? float_from_bf16(bf16_from_float(single))
            : n.dtype == DType::f16 ? float_from_f16(f16_from_float(single))
                                    : single;
      }
    }
  }
  return inputs;
}

// Of every result of the plan over the seeds whose inputs are given, by name. A loss is judged as
// the vector of its rows, not as a number.
inline std::map<std::string, Ratio> error_ratios(
    const Block& b, const std::function<Tensors(const Values&)>& run_plan, const OpByOp& op_by_op,
    const DimValues& sizes, const std::vector<Values>& inputs_of_seeds) {
  std::map<std::string, Ratio> ratios;
  for (const Values& inputs : inputs_of_seeds) {
    const Tensors results = run_plan(inputs);
    const Values plain = op_by_op.run(inputs, sizes);
    for (const auto& [name, value] : plain_values(b.graph, b.request, inputs, sizes)) {
      if (value.size() == 1) continue;
      ratios[name].add(squared_error(results.get(name), value),
                       squared_error(plain.at(name), value), value.size());
    }
  }
  return ratios;
}

inline std::map<std::string, Ratio> error_ratios(const Block& b, const Plan& plan,
                                                 const OpByOp& op_by_op, const DimValues& sizes,
                                                 const std::vector<Values>& inputs_of_seeds) {
  const auto on_cpu = [&](const Values& inputs) { return run(plan, sizes, inputs, 2); };
  return error_ratios(b, on_cpu, op_by_op, sizes, inputs_of_seeds);
}

// The error contract (docs/numerics.md): over all seeds, and of every seed.
inline void expect_contract(const std::map<std::string, Ratio>& ratios) {
  for (const auto& [name, ratio] : ratios) {
    EXPECT_LE(ratio.value() - 3 * ratio.standard_error(), ratio.bound())
        << name << ": " << ratio.value() << " +- " << ratio.standard_error();
    for (size_t seed = 0; seed < ratio.seeds(); ++seed)
      EXPECT_LE(ratio.error_of(seed), ratio.limit_of(seed)) << name << ", seed " << seed;
  }
}

}  // namespace coda
