// SPDX-License-Identifier: Apache-2.0
// Which elements of a row are its k largest, as an operation. It gives a mask rather than indices:
// a product with it chooses, and what is chosen has its gradient from that product. The mask itself
// changes in jumps only, so its own gradient is 0.
#include "operations/top_k.h"

#include <algorithm>
#include <numeric>

#include "coda/builders.h"
#include "coda/float16.h"
#include "operations/builtin.h"
#include "operations/gpu_text.h"

namespace coda {
namespace {

// The k first elements of a row in descending order get 1, the others 0.
template <class Number>
void mark_first(const Number* row, int64_t k, std::vector<int64_t>& order,
                std::vector<Number>& mask) {
  const int64_t cols = std::ssize(order);
  std::iota(order.begin(), order.end(), 0);
  if (k < cols) {
    std::nth_element(order.begin(), order.begin() + k, order.end(),
                     [&](int64_t i, int64_t j) { return comes_before(row[i], i, row[j], j); });
  }
  std::fill(mask.begin(), mask.end(), Number{0});
  for (int64_t i = 0; i < std::min(k, cols); ++i)
    mask[static_cast<size_t>(order[static_cast<size_t>(i)])] = 1;
}

float load(const TensorView& t, int64_t row, int64_t col) {
  const int64_t at = row * t.row_stride + col;
  if (t.dtype == DType::f32) return static_cast<const float*>(t.data)[at];
  const uint16_t bits = static_cast<const uint16_t*>(t.data)[at];
  return t.dtype == DType::bf16 ? float_from_bf16(bits) : float_from_f16(bits);
}

void store(float value, const TensorView& t, int64_t row, int64_t col) {
  const int64_t at = row * t.row_stride + col;
  if (t.dtype == DType::f32)
    static_cast<float*>(t.data)[at] = value;
  else
    static_cast<uint16_t*>(t.data)[at] =
        t.dtype == DType::bf16 ? bf16_from_float(value) : f16_from_float(value);
}

}  // namespace

Operation top_k_mask_operation() {
  Operation operation;
  operation.name = "top_k_mask";
  operation.operands = {"x"};
  operation.attributes = {{"k", {}}};
  operation.results = [](const OperationSettings& settings, const std::vector<Shape>& in) {
    settings.count("k");
    return std::vector<OperationResult>{{in[0]}};
  };
  operation.adjoint = [](const OperationSettings&, const std::vector<Value>&,
                         const std::vector<Value>&,
                         const std::vector<Value>&) { return std::vector<Value>{Value{}}; };
  operation.evaluate = [](const OperationSettings& settings, const std::vector<Matrix>& in,
                          std::vector<Matrix>& out) {
    const int64_t k = settings.count("k"), cols = in[0].cols;
    for (int64_t r = 0; r < in[0].rows; ++r) {
      for (int64_t i = 0; i < cols; ++i) {
        int64_t before = 0;
        for (int64_t j = 0; j < cols; ++j)
          before += comes_before(in[0].at(r, j), j, in[0].at(r, i), i) ? 1 : 0;
        out[0].at(r, i) = before < k ? 1 : 0;
      }
    }
  };
  operation.cpu = prepare_top_k_mask;
  operation.gpu = top_k_mask_kernels;
  return operation;
}

CpuKernel prepare_top_k_mask(const OperationCall& call, int threads) {
  for (size_t i = 0; i < call.tensors.size(); ++i)
    call.check_type(i, {DType::f32, DType::bf16, DType::f16});
  const int64_t k = call.settings.count("k");
  return [k, threads](std::span<const TensorView> t) {
    const int64_t rows = t[0].rows, cols = t[0].cols;
#pragma omp parallel num_threads(threads)
    {
      std::vector<float> x(cols), mask(cols);
      std::vector<int64_t> order(cols);
#pragma omp for schedule(static)
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) x[c] = load(t[0], r, c);
        mark_first(x.data(), k, order, mask);
        for (int64_t c = 0; c < cols; ++c) store(mask[c], t[1], r, c);
      }
    }
  };
}

std::vector<GpuKernel> top_k_mask_kernels(const OperationCall& call) {
  constexpr uint32_t kThreads = 256;
  const OperationTensor& x = call.tensors[0];
  call.check(x.rows * x.cols < int64_t{1} << 32,
             std::to_string(x.rows) + " rows of " + std::to_string(x.cols) +
                 " columns are too many for one launch; run it on fewer rows");
  return {{.name = "top_k_mask",
           .code = "#include \"device/kernels/top_k.cuh\"\n\nusing namespace coda::device;\n",
           .body = "  top_k_mask<" + element_name(call, 0) + ", " + element_name(call, 1) +
                   ">(n(0), n(1), n(2), p(0), n(3), p(1), n(4));\n",
           .numbers = {static_cast<uint32_t>(x.rows), static_cast<uint32_t>(x.cols),
                       static_cast<uint32_t>(call.settings.count("k")), row_stride(call, 0),
                       row_stride(call, 1)},
           .grid = launch_blocks(x.rows * x.cols, kThreads),
           .threads = kThreads}};
}

Value top_k_mask(Value x, int64_t k, Where where) {
  return opaque_call("top_k_mask", {x}, {{"k", static_cast<double>(k)}}, {}, where)[0];
}

}  // namespace coda
