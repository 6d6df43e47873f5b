// SPDX-License-Identifier: Apache-2.0
#include "models/model_builder.h"

#include "coda/error.h"

namespace coda {

void require_positions(const ModelOptions& options) {
  require(options.positions >= 1,
          "build_model: set ModelOptions::positions to the longest sequence that will be run; " +
              std::to_string(options.positions) + " positions leave the RoPE tables empty");
}

ModelBuilder::ModelBuilder(const ModelOptions& options, int64_t vocabulary,
                           double initializer_range)
    : storage_(options.storage),
      expert_rows_(options.expert_rows),
      initializer_range_(initializer_range) {
  model_->vocabulary = vocabulary;
  model_->ids = model_->graph.table("ids", {"M", 1}, DType::i32);
  model_->targets = model_->graph.table("targets", {"M", 1}, DType::i32);
  model_->positions = model_->graph.table("positions", {"M", 1}, DType::i32);
}

Value ModelBuilder::parameter(ModelParameter parameter, DType dtype) {
  parameter.value =
      model_->graph.parameter(parameter.name, {parameter.rows(), parameter.cols()}, dtype);
  model_->parameters.push_back(parameter);
  return parameter.value;
}

Value ModelBuilder::matrix(const std::string& name, int64_t rows, int64_t cols, double scale) {
  return parameter({name, {rows, cols}, {}, true, 0, scale * initializer_range_}, storage_);
}

Embedding ModelBuilder::embed(const std::string& name, int64_t cols,
                              std::optional<int64_t> padding_row) {
  const Value table = matrix(name, model_->vocabulary, cols);
  model_->parameters.back().zero_row = padding_row;
  return {table, embedding(table, model_->ids, padding_row)};
}

Value ModelBuilder::vector(const std::string& name, int64_t size, double value) {
  return parameter({name, {size}, {}, false, value, 0}, DType::f32);
}

Value ModelBuilder::table(const std::string& name, int64_t rows, int64_t cols,
                          std::vector<float> values) {
  model_->tables.push_back({name, rows, cols, std::move(values)});
  return model_->graph.table(name, {rows, cols});
}

Value ModelBuilder::indices(const std::string& name, const std::vector<int32_t>& values) {
  const int64_t count = std::ssize(values);
  model_->tables.push_back({name, count, 1, {values.begin(), values.end()}, DType::i32});
  return model_->graph.table(name, {count, 1}, DType::i32);
}

void ModelBuilder::add_dropped(Value count) {
  Value& all = model_->dropped;
  all = all.graph == nullptr ? count : all + count;
}

std::unique_ptr<ModelGraph> ModelBuilder::finish(Value logits) {
  const CrossEntropy loss =
      cross_entropy(logits, model_->targets, {.ignore_index = kIgnoredTarget});
  model_->logits = logits;
  model_->row_losses = loss.rows;
  model_->loss = loss.mean;
  return std::move(model_);
}

}  // namespace coda
