// SPDX-License-Identifier: Apache-2.0
// Embedding as an operation: its shapes, its gradient, its definition in float64. The kernels are
// in embedding_cpu.cc and embedding_gpu.cc.
#include "operations/embedding.h"

#include "coda/builders.h"
#include "coda/error.h"
#include "operations/builtin.h"

namespace coda {
namespace {

int64_t id_of(const Matrix& ids, int64_t row, int64_t table_rows) {
  const auto id = static_cast<int64_t>(ids.data[static_cast<size_t>(row)]);
  require(id >= 0 && id < table_rows, "embedding: id " + std::to_string(id) + " in row " +
                                          std::to_string(row) + " is outside the table of " +
                                          std::to_string(table_rows) + " rows");
  return id;
}

void check_ids(const Shape& ids, const Dim& rows) {
  require(ids == Shape{rows, 1}, "ids must be one value a row, " + Shape{rows, 1}.text());
}

}  // namespace

Operation embedding_operation() {
  Operation operation;
  operation.name = "embedding";
  operation.operands = {"table", "ids"};
  operation.results = [](const OperationSettings&, const std::vector<Shape>& in) {
    check_ids(in[1], in[1].rows);
    return std::vector<OperationResult>{{{in[1].rows, in[0].cols}}};
  };
  operation.adjoint = [](const OperationSettings&, const std::vector<Value>& in,
                         const std::vector<Value>&, const std::vector<Value>& gradients) {
    return std::vector<Value>{opaque_call("embedding_backward", {gradients[0], in[1]}, {},
                                          {{"rows", in[0].shape().rows}})[0],
                              Value{}};
  };
  operation.evaluate = [](const OperationSettings&, const std::vector<Matrix>& in,
                          std::vector<Matrix>& out) {
    for (int64_t i = 0; i < out[0].rows; ++i) {
      const int64_t id = id_of(in[1], i, in[0].rows);
      for (int64_t c = 0; c < out[0].cols; ++c) out[0].at(i, c) = in[0].at(id, c);
    }
  };
  operation.cpu = prepare_embedding;
  operation.gpu = embedding_kernels;
  return operation;
}

Operation embedding_backward_operation() {
  Operation operation;
  operation.name = "embedding_backward";
  operation.operands = {"drows", "ids"};
  operation.sizes = {"rows"};
  operation.can_add = true;
  operation.results = [](const OperationSettings& settings, const std::vector<Shape>& in) {
    check_ids(in[1], in[0].rows);
    return std::vector<OperationResult>{{{settings.sizes.at("rows"), in[0].cols}}};
  };
  operation.evaluate = [](const OperationSettings&, const std::vector<Matrix>& in,
                          std::vector<Matrix>& out) {
    if (in.size() > 2) out[0].data = in[2].data;
    for (int64_t i = 0; i < in[0].rows; ++i) {
      const int64_t id = id_of(in[1], i, out[0].rows);
      for (int64_t c = 0; c < out[0].cols; ++c) out[0].at(id, c) += in[0].at(i, c);
    }
  };
  operation.cpu = prepare_embedding_backward;
  operation.gpu = embedding_backward_kernels;
  return operation;
}

Value embedding(Value table, Value ids, Where where) {
  return opaque_call("embedding", {table, ids}, {}, {}, where)[0];
}

}  // namespace coda
