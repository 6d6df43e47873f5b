// SPDX-License-Identifier: Apache-2.0
// Embedding and gather as operations: their shapes, gradients and definitions in float64. Both look
// rows up; the adjoint of a lookup adds rows up, and the adjoint of that is a lookup. The kernels
// are in embedding_cpu.cc and embedding_gpu.cc.
#include "operations/embedding.h"

#include "coda/builders.h"
#include "coda/error.h"
#include "operations/builtin.h"

namespace coda {
namespace {

constexpr const char* kPaddingRow = "padding_row";  // an embedding's; kNoRow: none

int64_t id_of(const std::string& operation, RowNumbers numbers, const Matrix& ids, int64_t row,
              int64_t table_rows) {
  const auto id = static_cast<int64_t>(ids.data[static_cast<size_t>(row)]);
  if (numbers == RowNumbers::computed && id == kNoRow) return id;
  require(id >= 0 && id < table_rows, operation + ": id " + std::to_string(id) + " in row " +
                                          std::to_string(row) + " is outside the table of " +
                                          std::to_string(table_rows) + " rows");
  return id;
}

void check_ids(const Shape& ids, const Dim& rows) {
  require(ids == Shape{rows, 1}, "ids must be one value a row, " + Shape{rows, 1}.text());
}

// What programs compute of rows, a number each, is fp32 in plans; what is gathered of it stays so.
bool is_fp32(RowNumbers numbers, const Shape& x) {
  return numbers == RowNumbers::computed && x.cols.is(1);
}

Operation lookup(const std::string& name, const std::string& adjoint, RowNumbers numbers) {
  Operation operation;
  operation.name = name;
  operation.operands = {"table", "ids"};
  operation.results = [numbers](const OperationSettings&, const std::vector<Shape>& in) {
    check_ids(in[1], in[1].rows);
    return std::vector<OperationResult>{{{in[1].rows, in[0].cols}, is_fp32(numbers, in[0])}};
  };
  operation.adjoint = [adjoint](const OperationSettings&, const std::vector<Value>& in,
                                const std::vector<Value>&, const std::vector<Value>& gradients) {
    return std::vector<Value>{
        opaque_call(adjoint, {gradients[0], in[1]}, {}, {{"rows", in[0].shape().rows}})[0],
        Value{}};
  };
  operation.evaluate = [name, numbers](const OperationSettings&, const std::vector<Matrix>& in,
                                       std::vector<Matrix>& out) {
    for (int64_t i = 0; i < out[0].rows; ++i) {
      const int64_t id = id_of(name, numbers, in[1], i, in[0].rows);
      if (id == kNoRow) continue;
      for (int64_t c = 0; c < out[0].cols; ++c) out[0].at(i, c) = in[0].at(id, c);
    }
  };
  operation.cpu = [numbers](const OperationCall& call, int threads) {
    return prepare_embedding(call, numbers, threads);
  };
  operation.gpu = [numbers](const OperationCall& call) { return embedding_kernels(call, numbers); };
  return operation;
}

Operation sum_of_rows(const std::string& name, RowNumbers numbers) {
  Operation operation;
  operation.name = name;
  operation.operands = {"drows", "ids"};
  operation.sizes = {"rows"};
  operation.can_add = true;
  operation.results = [numbers](const OperationSettings& settings, const std::vector<Shape>& in) {
    check_ids(in[1], in[0].rows);
    return std::vector<OperationResult>{
        {{settings.sizes.at("rows"), in[0].cols}, is_fp32(numbers, in[0])}};
  };
  operation.evaluate = [name, numbers](const OperationSettings&, const std::vector<Matrix>& in,
                                       std::vector<Matrix>& out) {
    if (in.size() > 2) out[0].data = in[2].data;
    for (int64_t i = 0; i < in[0].rows; ++i) {
      const int64_t id = id_of(name, numbers, in[1], i, out[0].rows);
      if (id == kNoRow) continue;
      for (int64_t c = 0; c < out[0].cols; ++c) out[0].at(id, c) += in[0].at(i, c);
    }
  };
  operation.cpu = [numbers](const OperationCall& call, int threads) {
    return prepare_embedding_backward(call, numbers, threads);
  };
  operation.gpu = [numbers](const OperationCall& call) {
    return embedding_backward_kernels(call, numbers);
  };
  return operation;
}

}  // namespace

Operation embedding_operation() {
  Operation operation = lookup("embedding", "embedding_backward", RowNumbers::ids);
  operation.attributes = {{kPaddingRow, kNoRow}};
  operation.adjoint = [adjoint = operation.adjoint](
                          const OperationSettings& settings, const std::vector<Value>& in,
                          const std::vector<Value>& results, std::vector<Value> gradients) {
    if (const double padding = settings.attribute(kPaddingRow); padding != kNoRow)
      gradients[0] = select(equal(in[1], padding), 0, gradients[0]);
    return adjoint(settings, in, results, gradients);
  };
  return operation;
}

Operation embedding_backward_operation() {
  return sum_of_rows("embedding_backward", RowNumbers::ids);
}

Operation gather_operation() { return lookup("gather", "scatter_add", RowNumbers::computed); }

// Unlike an embedding's gradient it stands in forwards too, so it has an adjoint.
Operation scatter_add_operation() {
  Operation operation = sum_of_rows("scatter_add", RowNumbers::computed);
  operation.adjoint = [](const OperationSettings&, const std::vector<Value>& in,
                         const std::vector<Value>&, const std::vector<Value>& gradients) {
    std::vector<Value> all{gather(gradients[0], in[1]), Value{}};
    if (in.size() > 2) all.push_back(gradients[0]);
    return all;
  };
  return operation;
}

Value embedding(Value table, Value ids, std::optional<int64_t> padding_row, Where where) {
  std::map<std::string, double> attributes;
  if (padding_row) attributes[kPaddingRow] = static_cast<double>(*padding_row);
  return opaque_call("embedding", {table, ids}, attributes, {}, where)[0];
}

Value gather(Value x, Value rows, Where where) {
  return opaque_call("gather", {x, rows}, {}, {}, where)[0];
}

Value scatter_add(Value x, Value rows, const Dim& count, Where where) {
  return opaque_call("scatter_add", {x, rows}, {}, {{"rows", count}}, where)[0];
}

}  // namespace coda
