// SPDX-License-Identifier: Apache-2.0
// Runs a plan in float64 with what each program may see and nothing else: every program gets the
// tensors that earlier ones stored, whole matrices by name. A value that a plan forgets to store is
// an error here.
#pragma once

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "coda/error.h"
#include "coda/plan.h"
#include "ir/opaque.h"
#include "program/evaluate.h"

namespace coda {

class PlanEvaluator {
 public:
  PlanEvaluator(const Plan& plan, DimValues sizes) : plan_(plan), sizes_(std::move(sizes)) {}

  std::map<std::string, std::vector<double>> values;  // inputs before, everything stored after

  void run(const std::vector<PlanStep>& phase, const program::EvaluateOptions& options = {}) {
    for (const PlanStep& step : phase) {
      if (const auto* program = std::get_if<Program>(&step.work)) {
        std::map<std::string, std::vector<double>> inputs;
        for (const TensorDecl& t : program->tensors) {
          if (has(t.name)) inputs[t.name] = read(t.name);
        }
        for (auto& [name, data] : program::evaluate(*program, sizes_, inputs, options))
          write(name, data);
      } else {
        call(std::get<OpaqueCall>(step.work));
      }
    }
  }

  // After the forward only what is saved, given or asked for is still there.
  void forget_temporaries() {
    for (const PlanTensor& t : plan_.tensors) {
      if (t.role == TensorRole::temporary) values.erase(t.decl.name);
    }
  }

 private:
  const PlanTensor& tensor(const std::string& name) const { return plan_.tensor(name); }

  bool has(const std::string& name) const {
    const PlanTensor& t = tensor(name);
    return t.view_of.empty() ? values.contains(name) : has(t.view_of);
  }

  std::vector<double> read(const std::string& name) const {
    const PlanTensor& t = tensor(name);
    if (t.view_of.empty()) return values.at(name);
    std::vector<double> base = read(t.view_of);
    if (t.transposed) return base;
    const int64_t width = tensor(t.view_of).decl.shape.cols.evaluate(sizes_);
    const int64_t rows = t.decl.shape.rows.evaluate(sizes_);
    const int64_t cols = t.decl.shape.cols.evaluate(sizes_);
    std::vector<double> out;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        out.push_back(base[static_cast<size_t>(r * width + t.column_offset.constant() + c)]);
      }
    }
    return out;
  }

  void write(const std::string& name, const std::vector<double>& data) {
    const PlanTensor& t = tensor(name);
    if (t.view_of.empty()) {
      values[name] = data;
      return;
    }
    const Shape& whole = tensor(t.view_of).decl.shape;
    const int64_t width = whole.cols.evaluate(sizes_);
    const int64_t rows = whole.rows.evaluate(sizes_);
    const int64_t cols = t.decl.shape.cols.evaluate(sizes_);
    std::vector<double> base = has(t.view_of)
                                   ? read(t.view_of)
                                   : std::vector<double>(static_cast<size_t>(rows * width),
                                                         std::numeric_limits<double>::quiet_NaN());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        base[static_cast<size_t>(r * width + t.column_offset.constant() + c)] =
            data[static_cast<size_t>(r * cols + c)];
      }
    }
    write(t.view_of, base);
  }

  void call(const OpaqueCall& opaque) {
    auto matrix = [this](const std::string& name) {
      const Shape& shape = tensor(name).decl.shape;
      Matrix m{shape.rows.evaluate(sizes_), shape.cols.evaluate(sizes_), {}};
      m.data.assign(static_cast<size_t>(m.rows * m.cols), 0.0);
      return m;
    };
    std::vector<Matrix> inputs;
    std::vector<Matrix> outputs;
    std::map<std::string, int64_t> sizes;
    for (const std::string& name : opaque.inputs) {
      inputs.push_back(matrix(name));
      require(has(name), opaque.function + " reads \"" + name + "\", which nothing stored");
      inputs.back().data = read(name);
    }
    for (const std::string& name : opaque.outputs) outputs.push_back(matrix(name));
    for (const auto& [name, size] : opaque.sizes) sizes[name] = size.evaluate(sizes_);
    outputs = opaque_info(opaque.function).evaluate(opaque.attributes, sizes, inputs, outputs);
    for (size_t i = 0; i < outputs.size(); ++i) write(opaque.outputs[i], outputs[i].data);
  }

  const Plan& plan_;
  DimValues sizes_;
};

}  // namespace coda
