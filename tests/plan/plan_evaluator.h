// SPDX-License-Identifier: Apache-2.0
// Runs a plan in float64 with what each program may see and nothing else: every program gets the
// tensors that earlier ones stored, whole matrices by name. A value that a plan forgets to store is
// an error here.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "coda/error.h"
#include "coda/operation.h"
#include "coda/plan.h"
#include "plan/after/row_blocks.h"
#include "program/evaluate.h"

namespace coda {

class PlanEvaluator {
 public:
  PlanEvaluator(const Plan& plan, DimValues sizes)
      : plan_(plan), whole_(std::move(sizes)), sizes_(whole_) {}

  std::map<std::string, std::vector<double>> values;  // inputs before, everything stored after

  void run(const std::vector<PlanStep>& phase, const program::EvaluateOptions& options = {}) {
    for (size_t i = 0; i < phase.size();) {
      if (phase[i].loop < 0) {
        run_step(phase[i++], options);
        continue;
      }
      size_t end = i;
      while (end < phase.size() && phase[end].loop == phase[i].loop) ++end;
      const RowBlocks& loop = plan_.loops[static_cast<size_t>(phase[i].loop)];
      for (int64_t block = 0; block < row_blocks_of(loop, whole_); ++block) {
        enter(loop, block);
        for (size_t k = i; k < end; ++k) run_step(phase[k], options);
      }
      sizes_ = whole_;
      loop_ = nullptr;
      // What only the loop sees is gone with it.
      for (const PlanTensor& t : plan_.tensors) {
        if (t.loop == phase[i].loop) values.erase(t.decl.name);
      }
      i = end;
    }
  }

  // After the forward only what is saved, given or asked for is still there.
  void forget_temporaries() {
    for (const PlanTensor& t : plan_.tensors) {
      if (t.role == TensorRole::temporary) values.erase(t.decl.name);
    }
  }

 private:
  void run_step(const PlanStep& step, const program::EvaluateOptions& options) {
    const auto* program = std::get_if<Program>(&step.work);
    if (program == nullptr) return call(std::get<OpaqueCall>(step.work));
    if (loop_ != nullptr && block_ > 0 && step.later) program = &*step.later;
    std::map<std::string, std::vector<double>> inputs;
    for (const TensorDecl& t : program->tensors) {
      if (has(t.name)) inputs[t.name] = read(t.name);
    }
    for (auto& [name, data] : program::evaluate(*program, sizes_, inputs, options))
      write(name, data);
  }

  // What only the loop sees holds one block, which the next one must not read.
  void enter(const RowBlocks& loop, int64_t block) {
    loop_ = &loop;
    block_ = block;
    sizes_ = sizes_of_row_block(loop, whole_, block);
    for (const PlanTensor& t : plan_.tensors) {
      if (t.loop >= 0) values.erase(t.decl.name);
    }
  }

  // Elements of a tensor before those that the block's steps see, and how many they see; all of
  // them outside of a loop.
  struct Part {
    int64_t begin = 0;
    int64_t count = 0;
    int64_t whole = 0;
  };
  Part part_of(const PlanTensor& t) const {
    const auto elements = [&](const DimValues& sizes) {
      const PhysicalShape shape = physical_shape(t.decl, sizes);
      return shape.rows * shape.cols;
    };
    if (loop_ == nullptr || t.loop >= 0 || !is_sliced(t.decl, *loop_)) {
      return {0, elements(sizes_), elements(sizes_)};
    }
    require(t.decl.lanes == 1, "a partial of two lanes is no slice of rows");
    return {block_ * elements(sizes_of_row_block(*loop_, whole_, 0)), elements(sizes_),
            elements(whole_)};
  }

  const PlanTensor& tensor(const std::string& name) const { return plan_.tensor(name); }

  bool has(const std::string& name) const {
    const PlanTensor& t = tensor(name);
    return t.view_of.empty() ? values.contains(name) : has(t.view_of);
  }

  int64_t offset_of(const PlanTensor& view) const {
    return view.column_offset == Dim(0) ? 0 : view.column_offset.evaluate(sizes_);
  }

  std::vector<double> read(const std::string& name) const {
    const PlanTensor& t = tensor(name);
    if (t.view_of.empty()) {
      const Part part = part_of(t);
      const std::vector<double>& whole = values.at(name);
      if (part.count == part.whole) return whole;
      return {whole.begin() + part.begin, whole.begin() + part.begin + part.count};
    }
    std::vector<double> base = read(t.view_of);
    if (t.transposed) return base;
    const int64_t width = tensor(t.view_of).decl.shape.cols.evaluate(sizes_);
    const int64_t rows = t.decl.shape.rows.evaluate(sizes_);
    const int64_t cols = t.decl.shape.cols.evaluate(sizes_);
    const int64_t offset = offset_of(t);
    std::vector<double> out;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        out.push_back(base[static_cast<size_t>(r * width + offset + c)]);
      }
    }
    return out;
  }

  void write(const std::string& name, const std::vector<double>& data) {
    const PlanTensor& t = tensor(name);
    if (t.view_of.empty()) {
      const Part part = part_of(t);
      std::vector<double>& whole = values[name];
      if (part.count == part.whole) {
        whole = data;
        return;
      }
      whole.resize(static_cast<size_t>(part.whole), std::numeric_limits<double>::quiet_NaN());
      std::copy(data.begin(), data.end(), whole.begin() + part.begin);
      return;
    }
    const Shape& whole = tensor(t.view_of).decl.shape;
    const int64_t width = whole.cols.evaluate(sizes_);
    const int64_t rows = whole.rows.evaluate(sizes_);
    const int64_t cols = t.decl.shape.cols.evaluate(sizes_);
    const int64_t offset = offset_of(t);
    std::vector<double> base = has(t.view_of)
                                   ? read(t.view_of)
                                   : std::vector<double>(static_cast<size_t>(rows * width),
                                                         std::numeric_limits<double>::quiet_NaN());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        base[static_cast<size_t>(r * width + offset + c)] = data[static_cast<size_t>(r * cols + c)];
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
    std::map<std::string, Dim> sizes;
    for (const std::string& name : opaque.inputs) {
      inputs.push_back(matrix(name));
      require(has(name), opaque.function + " reads \"" + name + "\", which nothing stored");
      inputs.back().data = read(name);
    }
    for (const std::string& name : opaque.outputs) outputs.push_back(matrix(name));
    for (const auto& [name, size] : opaque.sizes) sizes[name] = size.evaluate(sizes_);
    const Operation& operation = find_operation(opaque.function);
    operation.evaluate(checked_settings(operation, opaque.attributes, sizes), inputs, outputs);
    for (size_t i = 0; i < outputs.size(); ++i) write(opaque.outputs[i], outputs[i].data);
  }

  const Plan& plan_;
  DimValues whole_;
  DimValues sizes_;  // what the step that runs sees
  const RowBlocks* loop_ = nullptr;
  int64_t block_ = 0;
};

}  // namespace coda
