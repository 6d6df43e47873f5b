// SPDX-License-Identifier: Apache-2.0
// Common code of the builders of models: the inputs of every model, parameters that are registered
// at their first use, and the loss.
#pragma once

#include <memory>
#include <string>

#include "coda/builders.h"
#include "coda/models.h"

namespace coda {

// Throws Error for a model with RoPE of no positions.
void require_positions(const ModelOptions& options);

struct Embedding {
  Value table;
  Value rows;  // [M, cols]
};

class ModelBuilder {
 public:
  ModelBuilder(const ModelOptions& options, int64_t vocabulary, double initializer_range);

  // A matrix that decays, normal(0, scale * initializer_range).
  Value matrix(const std::string& name, int64_t rows, int64_t cols, double scale = 1);
  // The rows of a matrix [vocabulary, cols] of that name which the ids name. `padding_row` starts
  // as 0, and has no gradient from here.
  Embedding embed(const std::string& name, int64_t cols, std::optional<int64_t> padding_row = {});
  // A vector of `value`s, as [1, size]; fp32 and without decay.
  Value vector(const std::string& name, int64_t size, double value);
  Value table(const std::string& name, int64_t rows, int64_t cols, std::vector<float> values);
  // Of rows, as i32 [size, 1]. Below 2^24: floats keep them exactly.
  Value indices(const std::string& name, const std::vector<int32_t>& values);

  // See ModelOptions.
  int64_t expert_rows() const { return expert_rows_; }
  // Counts [1, 1] for ModelGraph::dropped.
  void add_dropped(Value count);

  ModelGraph& model() { return *model_; }
  // Adds the loss and hands the model over.
  std::unique_ptr<ModelGraph> finish(Value logits);

 private:
  Value parameter(ModelParameter parameter, DType dtype);

  std::unique_ptr<ModelGraph> model_ = std::make_unique<ModelGraph>();
  DType storage_;
  int64_t expert_rows_;
  double initializer_range_;
};

}  // namespace coda
