// SPDX-License-Identifier: Apache-2.0
// Attention's kernels for a GPU: a few lines of CUDA that name the type and the heads' sizes and
// call device/attention/ (tensor cores, 16 bits), device/sm90/attention/ (Hopper),
// device/kernels/attention.cuh (fp32) or attention_with_past.cuh. Lengths, strides, masks and
// scales are arguments of the kernel.
#include <algorithm>
#include <bit>

#include "device/attention/tiles.cuh"
#include "device/sm90/attention/tiles.cuh"
#include "operations/attention.h"
#include "operations/gpu_text.h"

namespace coda {
namespace {

namespace tensor_cores = device::attention;

constexpr int64_t kWarpSize = 32;
constexpr uint32_t kThreads = 128;  // of kernels in fp32
constexpr int64_t kLargestHead = tensor_cores::kMostHeadDim;
constexpr uint32_t kSizes = 8;  // numbers before the strides, one a tensor

std::string address_and_stride(size_t tensor) {
  return "p(" + std::to_string(tensor) + "), n(" + std::to_string(kSizes + tensor) + ")";
}
std::string head_rows(size_t tensor) { return "HeadRows{" + address_and_stride(tensor) + "}"; }
std::string operands_of_backward() {
  return "  const AttentionBackward in{sizes, " + head_rows(0) + ", " + head_rows(1) + ", " +
         head_rows(2) + ",\n      " + head_rows(3) + ", " + head_rows(5) + ", " +
         address_and_stride(4) + "};\n";
}

struct Call {
  AttentionShape shape;
  DType dtype = DType::f32;
  int64_t rows = 0;
  size_t operands = 0;
  std::string arguments;  // of the templates of the kernels in fp32
  std::vector<uint32_t> numbers;

  // Tensor cores would round fp32. Their kernels take the maximum of scores before they multiply
  // them by the scale, which must be positive for that.
  bool uses_tensor_cores() const { return dtype != DType::f32 && shape.scale > 0; }

  std::string sizes_text() const {
    return "  const AttentionSizes sizes{n(0), n(1), n(2), n(3), n(4), n(5),\n      "
           "__builtin_bit_cast(float, n(6)), __builtin_bit_cast(float, n(7))" +
           (shape.has_documents ? ", " + head_rows(shape.documents(operands))
            : shape.has_sinks   ? ", {}"
                                : "") +
           (shape.has_sinks       ? ", p(" + std::to_string(shape.sinks(operands)) + ")"
            : shape.has_key_spans ? ", 0"
                                  : "") +
           (shape.has_key_spans ? ", 2" : "") + "};\n";
  }

  // A warp for each row of `heads` heads.
  GpuKernel row_kernel(const std::string& name, const std::string& body, int64_t heads) const {
    return {.name = name,
            .code = "#include \"device/kernels/attention.cuh\"\n\nusing namespace coda::device;\n",
            .body = sizes_text() + body,
            .numbers = numbers,
            .grid = launch_blocks(rows * heads, kThreads / kWarpSize),
            .threads = kThreads};
  }

  tensor_cores::HeadShape head() const {
    return {.element = dtype == DType::bf16 ? device::Element::bf16 : device::Element::f16,
            .dim = static_cast<uint32_t>(shape.head_dim),
            .value_dim = static_cast<uint32_t>(shape.value_dim),
            .capped = shape.soft_cap != 0,
            .packed = shape.has_documents,
            .sinks = shape.has_sinks};
  }
  // The text in front of a kernel of this file under device/.
  std::string tensor_core_code(const std::string& file) const {
    return "#include \"device/" + file +
           "\"\n\nusing namespace coda::device;\nconstexpr attention::HeadShape kHead{.element = "
           "Element::" +
           std::string(name_of(dtype)) + ", .dim = " + std::to_string(shape.head_dim) +
           ", .value_dim = " + std::to_string(shape.value_dim) +
           ", .capped = " + (shape.soft_cap != 0 ? "true" : "false") +
           (shape.has_documents ? ", .packed = true" : "") +
           (shape.has_sinks ? ", .sinks = true" : "") + "};\n";
  }
  // The kernel of device/attention/sinks.cuh. `numbers` is the text of its QueryNumbers.
  GpuKernel sinks_kernel(const std::string& code, const std::string& numbers_text,
                         size_t gradient) const {
    return {.name = "attention_backward_sinks",
            .code = "#include \"device/attention/sinks.cuh\"\n" + code,
            .body = sizes_text() + "  attention::sink_gradient(sizes, " + numbers_text + ", p(" +
                    std::to_string(gradient) + "));\n",
            .numbers = numbers,
            .grid = static_cast<uint32_t>(shape.heads),
            .threads = tensor_cores::kSinkThreads,
            .shared_bytes = tensor_cores::kSinkThreads * 4};
  }
  // A kernel of device/attention/`function`.cuh. Its grid has one CTA for each head, sequence and
  // block of `block` tokens; `heads` is the number of query heads, or of key-value heads.
  GpuKernel tensor_core_kernel(const std::string& name, const std::string& function,
                               const std::string& body, int64_t block, int64_t heads,
                               uint32_t shared_bytes) const {
    return {.name = name,
            .code = tensor_core_code("attention/" + function + ".cuh"),
            .body = sizes_text() + body,
            .numbers = numbers,
            .grid = static_cast<uint32_t>(ceil_div(shape.tokens, block) * shape.sequences * heads),
            .threads = tensor_cores::kThreads,
            .shared_bytes = shared_bytes};
  }
  // The kernel of device/sm90/attention/forward.cuh: a CTA for each multiprocessor.
  GpuKernel hopper_kernel(const std::string& results, uint32_t multiprocessors) const {
    const tensor_cores::sm90::ForwardTiles tiles = tensor_cores::sm90::hopper_tiles(head());
    const int64_t count =
        ceil_div(shape.tokens, int64_t{tiles.queries()}) * shape.sequences * shape.heads;
    const auto map = [&](size_t tensor, int64_t columns, uint32_t box_rows) {
      return GpuTensorMap{tensor, rows, columns, shape.tokens, box_rows, device::kBlockK};
    };
    return {.name = "attention_forward",
            .code = tensor_core_code("sm90/attention/forward.cuh"),
            .body = sizes_text() + "  attention::sm90::forward<kHead>(sizes, {m(0), m(1), m(2)}, " +
                    results + ");\n",
            .numbers = numbers,
            .maps = {map(0, shape.heads * shape.head_dim, tiles.queries()),
                     map(1, shape.kv_heads * shape.head_dim, tiles.keys),
                     map(2, shape.kv_heads * shape.value_dim, tiles.keys)},
            .grid = static_cast<uint32_t>(std::min(count, int64_t{multiprocessors})),
            .threads = tiles.threads(),
            .shared_bytes = forward_layout(head(), tiles).bytes};
  }
};

// The kernels of device/sm90/attention/backward.cuh and backward_rows.cuh.
std::vector<GpuKernel> hopper_backward(const OperationCall& call, const Call& c) {
  using namespace tensor_cores::sm90;
  const size_t dq = call.operands, dk = dq + 1, dv = dq + 2;
  const AttentionShape& shape = c.shape;
  const BackwardTiles tiles = backward_tiles(c.head());
  const auto size = [](int64_t x) { return static_cast<uint32_t>(x); };
  const BackwardScratch scratch(size(shape.sequences), size(shape.tokens), size(shape.heads),
                                size(shape.kv_heads), c.head());
  const int64_t key_blocks = ceil_div(shape.tokens, int64_t{kBackwardKeys});
  const auto map = [&](size_t tensor, int64_t heads, uint32_t box_rows) {
    return GpuTensorMap{tensor,       c.rows,   heads * shape.head_dim,
                        shape.tokens, box_rows, device::kBlockK};
  };
  const std::string scratch_data = "p(" + std::to_string(call.tensors.size()) + ")";
  const auto kernel = [&](const std::string& name, const std::string& file,
                          const std::string& statement, int64_t blocks, uint32_t threads) {
    return GpuKernel{.name = name,
                     .code = c.tensor_core_code("sm90/attention/" + file),
                     .body = c.sizes_text() + statement,
                     .numbers = c.numbers,
                     .grid = size(blocks * shape.sequences),
                     .threads = threads,
                     .scratch_bytes = static_cast<int64_t>(scratch.bytes)};
  };
  GpuKernel main =
      kernel("attention_backward", "backward.cuh",
             "  attention::sm90::backward<kHead>(sizes, {m(0), m(1), m(2), m(3)}, " + scratch_data +
                 ", n(" + std::to_string(c.numbers.size()) + "),\n      " + head_rows(dq) + ", " +
                 head_rows(dk) + ", " + head_rows(dv) + ");\n",
             key_blocks * shape.kv_heads, tiles.threads());
  main.maps = {map(0, shape.heads, tiles.queries), map(1, shape.kv_heads, kBackwardKeys),
               map(2, shape.kv_heads, kBackwardKeys), map(5, shape.heads, tiles.queries)};
  main.shared_bytes = backward_layout(c.head(), tiles).bytes;
  // As many heads as CTAs can run at a time.
  main.numbers.push_back(
      size(std::max(int64_t{1}, (call.multiprocessors + key_blocks / 2) / key_blocks)));
  std::vector<GpuKernel> kernels{
      kernel("attention_backward_begin", "backward_rows.cuh",
             operands_of_backward() + "  attention::sm90::begin_backward<kHead>(in, " +
                 scratch_data + ", " + head_rows(dq) + ");\n",
             key_blocks * (kBackwardKeys / kRowsTokens) * shape.heads, kRowsThreads),
      main};
  if (!shape.has_sinks) return kernels;
  kernels.push_back(c.sinks_kernel(c.tensor_core_code("sm90/attention/backward_rows.cuh"),
                                   "attention::sm90::RowSums(" + scratch_data +
                                       ", attention::sm90::scratch_of<kHead>(sizes), sizes)"
                                       ".numbers()",
                                   dv + 1));
  kernels.back().scratch_bytes = main.scratch_bytes;
  return kernels;
}

// Checks the types. All tensors have the type of the first one, except documents (i32), sinks (f32)
// and the tensor number `other`.
Call checked(const OperationCall& call, const AttentionShape& a, size_t other, DType others_type) {
  const int64_t rows = call.tensors[0].rows;
  for (int64_t dim : {a.head_dim, a.value_dim})
    call.check(dim <= kLargestHead, "a head of " + std::to_string(dim) + " is above the largest, " +
                                        std::to_string(kLargestHead));
  const auto number = [](int64_t x) { return static_cast<uint32_t>(x); };
  const auto bits = [](double x) { return std::bit_cast<uint32_t>(static_cast<float>(x)); };
  Call result{a,
              call.tensors[0].dtype,
              rows,
              call.operands,
              "<" + element_name(call, 0) + ", " + std::to_string(a.head_dim) + ", " +
                  std::to_string(a.value_dim) + ">",
              {number(rows), number(a.tokens), number(a.heads), number(a.kv_heads),
               a.causal ? 1U : 0U, number(a.window), bits(a.scale), bits(a.soft_cap)}};
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const bool is_documents = a.has_documents && i == a.documents(call.operands);
    call.check_type(i, {is_documents                      ? DType::i32
                        : a.is_of_sinks(i, call.operands) ? DType::f32
                        : i == other                      ? others_type
                                                          : call.tensors[0].dtype});
    result.numbers.push_back(row_stride(call, i));
  }
  return result;
}

Call checked(const OperationCall& call, size_t lse) {
  return checked(call, attention_shape(call.settings, call.tensors[0].rows), lse, DType::f32);
}

}  // namespace

std::vector<GpuKernel> attention_with_past_kernels(const OperationCall& call,
                                                   const AttentionShape& shape) {
  constexpr uint32_t kPastThreads = 8 * kWarpSize;  // kPastWarps of attention_with_past.cuh
  constexpr size_t kLength = 5;
  const Call c = checked(call, shape, kLength, DType::i32);
  const std::string dims = std::to_string(shape.head_dim) + ", " + std::to_string(shape.value_dim);
  return {
      {.name = "attention_with_past",
       .code = "#include \"device/kernels/attention_with_past.cuh\"\n\n"
               "using namespace coda::device;\n",
       .body = c.sizes_text() + ("  __shared__ PastShares<" + std::to_string(shape.value_dim)) +
               "> shares;\n  attention_with_past<" + element_name(call, 0) + ", " + dims +
               ">(shares, sizes, " + head_rows(0) + ", " + head_rows(1) + ",\n      " +
               head_rows(2) + ", PastRows{" + head_rows(3) + ", " + head_rows(4) +
               ", load_index(p(5), 0)},\n      " +
               (shape.has_sinks ? "load_element<Element::f32>(p(6), block_index() % sizes.heads)"
                                : "-kInfinity") +
               ", " + head_rows(call.operands) + ");\n",
       .numbers = c.numbers,
       .grid = static_cast<uint32_t>(c.rows * shape.heads),
       .threads = kPastThreads}};
}

bool own_attention_is_fastest(const OperationCall& call) {
  const AttentionShape shape = attention_shape(call.settings, call.tensors[0].rows);
  return call.gpu_target == "sm90" && call.tensors[0].dtype != DType::f32 && shape.scale > 0 &&
         tensor_cores::sm90::takes_backward({.dim = static_cast<uint32_t>(shape.head_dim),
                                             .value_dim = static_cast<uint32_t>(shape.value_dim)});
}

std::vector<GpuKernel> attention_kernels(const OperationCall& call) {
  const size_t y = call.operands, lse = y + 1;
  const Call c = checked(call, lse);
  const std::string results = head_rows(y) + ", " + address_and_stride(lse);
  const std::string tensors = "(sizes, " + head_rows(0) + ", " + head_rows(1) + ", " +
                              head_rows(2) + ",\n      " + results + ");\n";
  if (!c.uses_tensor_cores())
    return {
        c.row_kernel("attention", "  attention_forward" + c.arguments + tensors, c.shape.heads)};
  if (call.gpu_target == "sm90" && tensor_cores::sm90::takes(c.head()))
    return {c.hopper_kernel(results, call.multiprocessors)};
  const tensor_cores::Tiles tiles = forward_tiles(c.head());
  return {c.tensor_core_kernel("attention_forward", "forward",
                               "  attention::forward<kHead>" + tensors, tiles.rows(), c.shape.heads,
                               forward_bytes(c.head(), tiles))};
}

std::vector<GpuKernel> attention_backward_kernels(const OperationCall& call) {
  const Call c = checked(call, 4);
  const size_t dq = call.operands, dk = dq + 1, dv = dq + 2;
  const std::string in = operands_of_backward();
  const std::string scratch = "p(" + std::to_string(call.tensors.size()) + ")";
  if (!c.uses_tensor_cores()) {
    std::vector<GpuKernel> kernels{
        c.row_kernel("attention_backward_queries",
                     in + "  attention_backward_queries" + c.arguments + "(in, " + head_rows(dq) +
                         ", " + (c.shape.has_sinks ? scratch : "0") + ");\n",
                     c.shape.heads),
        c.row_kernel("attention_backward_keys",
                     in + "  attention_backward_keys" + c.arguments + "(in, " + head_rows(dk) +
                         ", " + head_rows(dv) + ");\n",
                     c.shape.kv_heads)};
    if (!c.shape.has_sinks) return kernels;
    const int64_t bytes = c.rows * c.shape.heads * 4;  // of each of a row's two numbers
    kernels.push_back(c.sinks_kernel(
        "using namespace coda::device;\n",
        "{" + scratch + ", " + scratch + " + " + std::to_string(bytes) + ", sizes.sequence}",
        dv + 1));
    for (GpuKernel& kernel : kernels) kernel.scratch_bytes = 2 * bytes;
    return kernels;
  }
  const tensor_cores::HeadShape head = c.head();
  if (call.gpu_target == "sm90" && tensor_cores::sm90::takes_backward(head))
    return hopper_backward(call, c);
  const tensor_cores::Tiles by_query = backward_queries_tiles(head);
  const tensor_cores::Tiles by_key = backward_keys_tiles(head);
  std::vector<GpuKernel> kernels{
      c.tensor_core_kernel("attention_backward_queries", "backward_queries",
                           in + "  attention::backward_queries<kHead>(in, " + scratch + ", " +
                               head_rows(dq) + ");\n",
                           by_query.rows(), c.shape.heads, backward_queries_bytes(head, by_query)),
      c.tensor_core_kernel("attention_backward_keys", "backward_keys",
                           in + "  attention::backward_keys<kHead>(in, " + scratch + ", " +
                               head_rows(dk) + ", " + head_rows(dv) + ");\n",
                           by_key.rows(), c.shape.kv_heads * head.parts(),
                           backward_keys_bytes(head, by_key))};
  if (c.shape.has_sinks)
    kernels.push_back(c.sinks_kernel(c.tensor_core_code("attention/backward_queries.cuh"),
                                     "attention::Statistics(" + scratch + ", sizes).numbers()",
                                     dv + 1));
  for (GpuKernel& kernel : kernels) {
    kernel.scratch_bytes = 2 * c.shape.sequences * c.shape.heads *
                           round_up(c.shape.tokens, int64_t{tensor_cores::kStatisticsBlock}) * 4;
  }
  return kernels;
}

}  // namespace coda
