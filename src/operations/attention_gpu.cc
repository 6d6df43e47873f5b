// SPDX-License-Identifier: Apache-2.0
// Attention's kernels for a GPU: a few lines of CUDA that name the type and the heads' sizes and
// call device/kernels/attention.cuh or attention_with_past.cuh; everything else is among the
// numbers.
#include <bit>

#include "operations/attention.h"
#include "operations/gpu_text.h"

namespace coda {
namespace {

constexpr int64_t kWarpSize = 32;
constexpr uint32_t kThreads = 128;
constexpr int64_t kLargestHead = 256;
constexpr uint32_t kSizes = 8;  // numbers before the strides, one a tensor
constexpr const char* kSizesText =
    "  const AttentionSizes sizes{n(0), n(1), n(2), n(3), n(4), n(5),\n      "
    "__builtin_bit_cast(float, n(6)), __builtin_bit_cast(float, n(7))};\n";

std::string head_rows(size_t tensor) {
  return "HeadRows{p(" + std::to_string(tensor) + "), n(" + std::to_string(kSizes + tensor) + ")}";
}
std::string lse_rows() { return "p(4), n(" + std::to_string(kSizes + 4) + ")"; }

struct Call {
  AttentionShape shape;
  int64_t rows = 0;
  std::string arguments;  // of the device functions' templates
  std::vector<uint32_t> numbers;

  // A warp for each row of `heads` heads.
  GpuKernel kernel(const std::string& name, const std::string& body, int64_t heads) const {
    return {.name = name,
            .code = "#include \"device/kernels/attention.cuh\"\n\nusing namespace coda::device;\n",
            .body = kSizesText + body,
            .numbers = numbers,
            .grid = launch_blocks(rows * heads, kThreads / kWarpSize),
            .threads = kThreads};
  }
};

// All tensors have the type of the first, but for one.
Call checked(const OperationCall& call, const AttentionShape& a, size_t other, DType others_type) {
  const int64_t rows = call.tensors[0].rows;
  for (int64_t dim : {a.head_dim, a.value_dim})
    call.check(dim <= kLargestHead, "a head of " + std::to_string(dim) + " is above the largest, " +
                                        std::to_string(kLargestHead));
  const auto number = [](int64_t x) { return static_cast<uint32_t>(x); };
  const auto bits = [](double x) { return std::bit_cast<uint32_t>(static_cast<float>(x)); };
  Call result{a,
              rows,
              "<" + element_name(call, 0) + ", " + std::to_string(a.head_dim) + ", " +
                  std::to_string(a.value_dim) + ">",
              {number(rows), number(a.tokens), number(a.heads), number(a.kv_heads),
               a.causal ? 1U : 0U, number(a.window), bits(a.scale), bits(a.soft_cap)}};
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    call.check_type(i, {i == other ? others_type : call.tensors[0].dtype});
    result.numbers.push_back(row_stride(call, i));
  }
  return result;
}

// Tensor 4 is lse, both of the forward and of the backward.
Call checked(const OperationCall& call) {
  return checked(call, attention_shape(call.settings, call.tensors[0].rows), 4, DType::f32);
}

}  // namespace

std::vector<GpuKernel> attention_with_past_kernels(const OperationCall& call,
                                                   const AttentionShape& shape) {
  constexpr uint32_t kPastThreads = 8 * kWarpSize;  // kPastWarps of attention_with_past.cuh
  constexpr size_t kLength = 5;
  const Call c = checked(call, shape, kLength, DType::i32);
  const std::string dims = std::to_string(shape.head_dim) + ", " + std::to_string(shape.value_dim);
  return {{.name = "attention_with_past",
           .code = "#include \"device/kernels/attention_with_past.cuh\"\n\n"
                   "using namespace coda::device;\n",
           .body = kSizesText + ("  __shared__ PastShares<" + std::to_string(shape.value_dim)) +
                   "> shares;\n  attention_with_past<" + element_name(call, 0) + ", " + dims +
                   ">(shares, sizes, " + head_rows(0) + ", " + head_rows(1) + ",\n      " +
                   head_rows(2) + ", PastRows{" + head_rows(3) + ", " + head_rows(4) +
                   ", load_index(p(5), 0)},\n      " + head_rows(6) + ");\n",
           .numbers = c.numbers,
           .grid = static_cast<uint32_t>(c.rows * shape.heads),
           .threads = kPastThreads}};
}

std::vector<GpuKernel> attention_kernels(const OperationCall& call) {
  const Call c = checked(call);
  return {c.kernel("attention",
                   "  attention_forward" + c.arguments + "(sizes, " + head_rows(0) + ", " +
                       head_rows(1) + ", " + head_rows(2) + ",\n      " + head_rows(3) + ", " +
                       lse_rows() + ");\n",
                   c.shape.heads)};
}

std::vector<GpuKernel> attention_backward_kernels(const OperationCall& call) {
  const Call c = checked(call);
  const std::string in = "  const AttentionBackward in{sizes, " + head_rows(0) + ", " +
                         head_rows(1) + ", " + head_rows(2) + ",\n      " + head_rows(3) + ", " +
                         head_rows(5) + ", " + lse_rows() + "};\n";
  return {
      c.kernel("attention_backward_queries",
               in + "  attention_backward_queries" + c.arguments + "(in, " + head_rows(6) + ");\n",
               c.shape.heads),
      c.kernel("attention_backward_keys",
               in + "  attention_backward_keys" + c.arguments + "(in, " + head_rows(7) + ", " +
                   head_rows(8) + ");\n",
               c.shape.kv_heads)};
}

}  // namespace coda
