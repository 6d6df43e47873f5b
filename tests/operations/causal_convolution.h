// SPDX-License-Identifier: Apache-2.0
// An operation that the library does not have, registered as a program would: a convolution of each
// column with weights of its own over the rows before it (Mamba's), its gradients, its kernels.
//   causal_convolution(x [M, C], w [W, C]) -> y [M, C]: y[t] = sum over j of w[j] * x[t - j]
//   with reversed = 1 x[t + j] instead, which is x's gradient;
//   causal_convolution_weights(x, dy) -> dw [W, C]: dw[j] = sum over t of x[t - j] * dy[t].
// Rows are sequences of `sequence` rows; what lies outside a sequence counts as 0.
#pragma once

#include <algorithm>
#include <string>

#include "coda/error.h"
#include "coda/operation.h"

namespace coda::tests {

// The rows t - j, or t + j, that row t of a sequence has.
struct ConvolutionSpan {
  int64_t step = -1;
  int64_t count = 0;
};
inline ConvolutionSpan convolution_span(int64_t row, int64_t sequence, int64_t width,
                                        bool reversed) {
  const int64_t token = row % sequence;
  return {reversed ? 1 : -1, std::min(width, reversed ? sequence - token : token + 1)};
}

inline Operation causal_convolution() {
  Operation o;
  o.name = "causal_convolution";
  o.operands = {"x", "w"};
  o.attributes = {{"reversed", 0.0}};
  o.sizes = {"sequence"};
  o.results = [](const OperationSettings&, const std::vector<Shape>& in) {
    require(in[0].cols == in[1].cols, "x and w must have as many columns");
    return std::vector<OperationResult>{{in[0]}};
  };
  o.adjoint = [](const OperationSettings& settings, const std::vector<Value>& in,
                 const std::vector<Value>&, const std::vector<Value>& dy) {
    return std::vector<Value>{
        opaque_call("causal_convolution", {dy[0], in[1]}, {{"reversed", 1}}, settings.sizes)[0],
        opaque_call(
            "causal_convolution_weights", {in[0], dy[0]}, {},
            {{"sequence", settings.sizes.at("sequence")}, {"width", in[1].shape().rows}})[0]};
  };
  o.evaluate = [](const OperationSettings& settings, const std::vector<Matrix>& in,
                  std::vector<Matrix>& out) {
    for (int64_t t = 0; t < in[0].rows; ++t) {
      const ConvolutionSpan span = convolution_span(t, settings.size("sequence"), in[1].rows,
                                                    settings.attribute("reversed") != 0);
      for (int64_t j = 0; j < span.count; ++j)
        for (int64_t c = 0; c < in[0].cols; ++c)
          out[0].at(t, c) += in[1].at(j, c) * in[0].at(t + span.step * j, c);
    }
  };
  o.cpu = [](const OperationCall& call, int) -> CpuKernel {
    for (size_t i = 0; i < 3; ++i) call.check_type(i, {DType::f32});
    const bool reversed = call.settings.attribute("reversed") != 0;
    const int64_t sequence = call.settings.size("sequence");
    return [=](std::span<const TensorView> t) {
      const auto at = [&](int tensor, int64_t row) {
        return static_cast<float*>(t[tensor].data) + row * t[tensor].row_stride;
      };
      for (int64_t row = 0; row < t[0].rows; ++row) {
        std::fill_n(at(2, row), t[2].cols, 0.0F);
        const ConvolutionSpan span = convolution_span(row, sequence, t[1].rows, reversed);
        for (int64_t j = 0; j < span.count; ++j)
          for (int64_t c = 0; c < t[2].cols; ++c)
            at(2, row)[c] += at(1, j)[c] * at(0, row + span.step * j)[c];
      }
    };
  };
  o.gpu = [](const OperationCall& call) {
    const auto number = [](int64_t x) { return static_cast<uint32_t>(x); };
    const OperationTensor &x = call.tensors[0], &w = call.tensors[1], &y = call.tensors[2];
    call.check_type(0, {DType::f32, DType::bf16});
    for (size_t i : {1U, 2U}) call.check_type(i, {x.dtype});
    const std::string type = "Element::" + std::string(name_of(x.dtype));
    GpuKernel kernel;
    kernel.name = "causal_convolution";
    kernel.code = R"(
#include "device/element.cuh"
#include "device/ptx/lanes.cuh"
using namespace coda::device;
)";
    kernel.body = "  constexpr Element kStored = " + type + R"(;
  const u32 at = block_index() * block_threads() + thread_index();
  const u32 rows = n(0), columns = n(1), width = n(2), sequence = n(3), reversed = n(4);
  const u32 row = at / columns, column = at % columns;
  if (row >= rows) return;
  const u32 token = row % sequence;
  const u32 most = reversed != 0 ? sequence - token : token + 1;
  float sum = 0;
  for (u32 j = 0; j < (width < most ? width : most); ++j) {
    const u32 from = reversed != 0 ? row + j : row - j;
    sum += load_element<kStored>(p(1), static_cast<u64>(j) * n(6) + column) *
           load_element<kStored>(p(0), static_cast<u64>(from) * n(5) + column);
  }
  store_element<kStored>(p(2), static_cast<u64>(row) * n(7) + column, sum);
)";
    kernel.numbers = {number(x.rows),
                      number(x.cols),
                      number(w.rows),
                      number(call.settings.size("sequence")),
                      call.settings.attribute("reversed") != 0 ? 1U : 0U,
                      number(x.row_stride),
                      number(w.row_stride),
                      number(y.row_stride)};
    kernel.threads = 128;
    kernel.grid = number((x.rows * x.cols + 127) / 128);
    return std::vector<GpuKernel>{kernel};
  };
  return o;
}

inline Operation causal_convolution_weights() {
  Operation o;
  o.name = "causal_convolution_weights";
  o.operands = {"x", "dy"};
  o.sizes = {"sequence", "width"};
  o.can_add = true;
  o.results = [](const OperationSettings& settings, const std::vector<Shape>& in) {
    require(in[0] == in[1], "x and dy must have one shape");
    return std::vector<OperationResult>{{{settings.sizes.at("width"), in[0].cols}}};
  };
  o.evaluate = [](const OperationSettings& settings, const std::vector<Matrix>& in,
                  std::vector<Matrix>& out) {
    if (in.size() > 2) out[0] = in[2];
    for (int64_t t = 0; t < in[0].rows; ++t) {
      const ConvolutionSpan span =
          convolution_span(t, settings.size("sequence"), out[0].rows, false);
      for (int64_t j = 0; j < span.count; ++j)
        for (int64_t c = 0; c < in[0].cols; ++c)
          out[0].at(j, c) += in[0].at(t - j, c) * in[1].at(t, c);
    }
  };
  o.cpu = [](const OperationCall& call, int) -> CpuKernel {
    for (size_t i = 0; i < call.tensors.size(); ++i) call.check_type(i, {DType::f32});
    const int64_t sequence = call.settings.size("sequence");
    return [=](std::span<const TensorView> t) {
      const auto at = [](const TensorView& view, int64_t row) {
        return static_cast<float*>(view.data) + row * view.row_stride;
      };
      const TensorView& out = t.back();
      for (int64_t j = 0; j < out.rows; ++j) {
        std::vector<float> sum(static_cast<size_t>(out.cols));
        if (t.size() == 4) std::copy_n(at(t[2], j), out.cols, sum.begin());
        for (int64_t row = 0; row < t[0].rows; ++row) {
          if (convolution_span(row, sequence, out.rows, false).count <= j) continue;
          for (int64_t c = 0; c < out.cols; ++c)
            sum[static_cast<size_t>(c)] += at(t[0], row - j)[c] * at(t[1], row)[c];
        }
        std::copy(sum.begin(), sum.end(), at(out, j));
      }
    };
  };
  // On a GPU a function, as for kernels of another library. What it enqueues is not looked into.
  o.gpu_function = [](const OperationCall&) -> GpuFunction {
    return [](void*, std::span<const TensorView>) {};
  };
  return o;
}

// Once for a program.
inline void register_causal_convolution() {
  [[maybe_unused]] static const bool once = [] {
    register_operation(causal_convolution());
    register_operation(causal_convolution_weights());
    return true;
  }();
}

}  // namespace coda::tests
