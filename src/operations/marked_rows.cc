// SPDX-License-Identifier: Apache-2.0
// Which rows each column of a mask marks, as an operation: with gather and scatter_add it lets a
// product have the chosen rows only. A list has a size of its own, which the caller chooses, so
// that shapes do not depend on data; it is filled in the order of rows, so that results repeat.
#include "operations/marked_rows.h"

#include "coda/builders.h"
#include "coda/error.h"
#include "operations/builtin.h"
#include "operations/embedding.h"
#include "operations/gpu_text.h"

namespace coda {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 24;  // whole numbers in fp32
constexpr int64_t kMostLists = 4096;             // no router has a tenth of it

// Both zeros are 0 in all three types, and anything else is a mark.
bool is_marked(const TensorView& mask, int64_t row, int64_t col) {
  const int64_t at = row * mask.row_stride + col;
  if (mask.dtype == DType::f32) return static_cast<const float*>(mask.data)[at] != 0;
  return (static_cast<const uint16_t*>(mask.data)[at] & 0x7fff) != 0;
}

void check_rows(const OperationCall& call) {
  call.check_type(0, {DType::f32, DType::bf16, DType::f16});
  for (size_t i = 1; i < call.tensors.size(); ++i) call.check_type(i, {DType::f32});
  call.check(call.tensors[0].rows <= kMostRows,
             std::to_string(call.tensors[0].rows) + " rows are more than fp32 numbers exactly (" +
                 std::to_string(kMostRows) + "); run it on fewer");
}

}  // namespace

Operation marked_rows_operation() {
  Operation operation;
  operation.name = "marked_rows";
  operation.operands = {"mask"};
  operation.sizes = {"rows"};
  operation.results = [](const OperationSettings& settings, const std::vector<Shape>& in) {
    require(in[0].cols.is_constant(),
            "the mask's columns must be a number, not " + in[0].cols.text());
    require(in[0].cols.constant() <= kMostLists, "the mask has " + in[0].cols.text() +
                                                     " columns, and there are at most " +
                                                     std::to_string(kMostLists) + " lists");
    const OperationResult list{{settings.sizes.at("rows"), 1}, true};
    return std::vector<OperationResult>(static_cast<size_t>(in[0].cols.constant()), list);
  };
  operation.adjoint = [](const OperationSettings&, const std::vector<Value>&,
                         const std::vector<Value>&,
                         const std::vector<Value>&) { return std::vector<Value>{Value{}}; };
  operation.evaluate = [](const OperationSettings&, const std::vector<Matrix>& in,
                          std::vector<Matrix>& out) {
    for (int64_t c = 0; c < in[0].cols; ++c) {
      Matrix& list = out[static_cast<size_t>(c)];
      int64_t filled = 0;
      for (int64_t r = 0; r < in[0].rows && filled < list.rows; ++r) {
        if (in[0].at(r, c) != 0) list.at(filled++, 0) = static_cast<double>(r);
      }
      for (; filled < list.rows; ++filled) list.at(filled, 0) = kNoRow;
    }
  };
  operation.cpu = prepare_marked_rows;
  operation.gpu = marked_rows_kernels;
  return operation;
}

CpuKernel prepare_marked_rows(const OperationCall& call, int threads) {
  check_rows(call);
  return [threads](std::span<const TensorView> t) {
    const TensorView& mask = t[0];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < mask.cols; ++c) {
      const TensorView& list = t[static_cast<size_t>(c) + 1];
      auto* const numbers = static_cast<float*>(list.data);
      int64_t filled = 0;
      for (int64_t r = 0; r < mask.rows && filled < list.rows; ++r) {
        if (is_marked(mask, r, c)) numbers[filled++ * list.row_stride] = static_cast<float>(r);
      }
      for (; filled < list.rows; ++filled) numbers[filled * list.row_stride] = kNoRow;
    }
  };
}

std::vector<GpuKernel> marked_rows_kernels(const OperationCall& call) {
  constexpr uint32_t kThreads = 256;  // device/kernels/marked_rows.cuh has the same
  check_rows(call);
  const OperationTensor& mask = call.tensors[0];
  for (size_t i = 1; i < call.tensors.size(); ++i) {
    const OperationTensor& list = call.tensors[i];
    call.check(list.rows == 1 || list.row_stride == 1, "'" + list.name + "' must lie side by side");
  }
  return {{.name = "marked_rows",
           .code = "#include \"device/kernels/marked_rows.cuh\"\n\nusing namespace coda::device;\n",
           .body = "  __shared__ MarkCounts counts;\n  marked_rows<" + element_name(call, 0) +
                   ">(counts, n(0), n(1), p(0), n(2), p(1 + block_index()));\n",
           .numbers = {static_cast<uint32_t>(mask.rows),
                       static_cast<uint32_t>(call.tensors[1].rows), row_stride(call, 0)},
           .grid = static_cast<uint32_t>(mask.cols),
           .threads = kThreads}};
}

std::vector<Value> marked_rows(Value mask, const Dim& rows, Where where) {
  return opaque_call("marked_rows", {mask}, {}, {{"rows", rows}}, where);
}

}  // namespace coda
