// SPDX-License-Identifier: Apache-2.0
// A batch that would need too much memory is processed in parts (attention_part.h).
#include "gpu/cudnn/attention_kernel.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/rounding.h"
#include "coda/error.h"
#include "gpu/launch/operation_launches.h"
#include "operations/attention.h"

namespace coda::gpu::cudnn {
namespace {

constexpr size_t kAlignment = 256;

// cuDNN's statistics are [sequences, heads, tokens]; ours have a row per token.
GpuKernel transpose_kernel(bool to_tokens, int64_t sequences, int64_t heads, int64_t tokens) {
  constexpr int64_t kThreads = 256;
  const auto number = [](int64_t x) { return static_cast<uint32_t>(x); };
  return {
      .name = to_tokens ? "statistics_of_tokens" : "statistics_of_heads",
      .code = "#include \"device/kernels/attention_statistics.cuh\"\n",
      .body = std::string("  coda::device::transpose_statistics(p(0), p(1), n(0), n(1), n(2), ") +
              (to_tokens ? "true" : "false") + ");\n",
      .numbers = {number(sequences), number(heads), number(tokens)},
      .grid = number(ceil_div(sequences * heads * tokens, kThreads)),
      .threads = kThreads};
}

class AttentionKernel : public Kernel {
 public:
  AttentionKernel(std::shared_ptr<GpuState> state, std::shared_ptr<Library> library,
                  const OperationCall& call, bool deterministic, const PartLimits& limits)
      : state_(std::move(state)), library_(std::move(library)), call_(call) {
    shape_ = attention_shape(call.settings, call.tensors[0].rows);
    problem_.backward = call.operation == "attention_backward";
    problem_.deterministic = deterministic;
    problem_.dtype = call.tensors[0].dtype;
    problem_.tokens = shape_.tokens;
    problem_.head_dim = shape_.head_dim;
    problem_.value_dim = shape_.value_dim;
    problem_.window = shape_.window;
    problem_.causal = shape_.causal;
    problem_.scale = static_cast<float>(shape_.scale);
    choose_part(limits);
    for (size_t i = 0; i < kOfProblem.size(); ++i) {
      if (const int tensor = tensor_of(i); tensor >= 0)
        problem_.token_strides[i] = call.tensors[tensor].cols;
    }
    const Context::Scope scope(*state_->context);
    scratch_bytes_ = layout_of(compiled()).bytes;
    std::vector<KernelTensor> tensors{{"lse", !problem_.backward, problem_.backward},
                                      {"statistics", problem_.backward, !problem_.backward}};
    const GpuKernel text =
        transpose_kernel(!problem_.backward, shape_.sequences, shape_.heads, shape_.tokens);
    transpose_ = std::make_unique<LaunchedKernel>(
        state_, "attention's statistics", std::move(tensors),
        [text](std::span<const int64_t>) { return std::vector{launch_of(text, 2)}; });
  }

  size_t scratch_bytes() const override { return scratch_bytes_; }
  void use_scratch(const BackendMemory& memory, size_t bytes) override {
    scratch_ = memory;
    scratch_bytes_ = bytes;
  }

  void run(std::span<const TensorView> tensors) override {
    const Context::Scope scope(*state_->context);
    check_device_tensors(call_, tensors);
    for (size_t i = 0; i < kOfProblem.size(); ++i) {
      if (const int tensor = tensor_of(i); tensor >= 0)
        problem_.token_strides[i] = tensors[tensor].row_stride;
    }
    library_->handle.use_stream(state_->stream);
    Library::Compiled& graph = compiled();
    const Layout layout = layout_of(graph);
    std::byte* const scratch = scratch_for(layout.bytes);

    const int64_t rows = shape_.tokens * shape_.sequences;
    const TensorView ours = dense_view(tensors[kLse].data, DType::f32, rows, shape_.heads);
    require(tensors[kLse].row_stride == shape_.heads,
            "attention: rows of 'lse' lie apart; it must be dense");
    const TensorView theirs = dense_view(scratch, DType::f32, rows, shape_.heads);
    const std::array both{ours, theirs};
    if (problem_.backward) transpose_->run(both);
    for (int64_t sequence = 0; sequence < shape_.sequences; sequence += problem_.sequences) {
      for (int64_t head = 0; head < shape_.kv_heads; head += problem_.kv_heads)
        run_part(graph, layout, tensors, scratch, sequence, head);
    }
    if (!problem_.backward) transpose_->run(both);
  }

 private:
  // Byte offsets in the scratch memory.
  struct Layout {
    size_t row_sums = 0;
    size_t dq_sums = 0;
    size_t workspace = 0;
    size_t bytes = 0;
  };
  // Indices of the call's tensors in the forward and the backward.
  static constexpr size_t kLse = 4;
  static constexpr std::array<std::array<int, 2>, 8> kOfProblem{
      {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {-1, 5}, {-1, 6}, {-1, 7}, {-1, 8}}};
  int tensor_of(size_t which) const { return kOfProblem[which][problem_.backward ? 1 : 0]; }

  void choose_part(const PartLimits& limits) {
    const AttentionPart part =
        attention_part(shape_, problem_.backward, problem_.deterministic, limits);
    problem_.sequences = part.sequences;
    problem_.kv_heads = part.kv_heads;
    problem_.heads = problem_.kv_heads * shape_.group();
  }

  Library::Compiled& compiled() { return library_->compiled(problem_); }

  Layout layout_of(const Library::Compiled& graph) const {
    Layout layout;
    size_t end = 0;
    const auto place = [&](int64_t bytes) {
      return std::exchange(end, end + round_up(static_cast<size_t>(bytes), kAlignment));
    };
    place(shape_.sequences * shape_.tokens * shape_.heads * 4);  // the statistics
    const int64_t rows = problem_.sequences * problem_.heads * problem_.tokens;
    layout.row_sums = place(graph.attention.row_sums < 0 ? 0 : rows * 4);
    layout.dq_sums = place(graph.attention.dq_sums < 0 ? 0 : rows * problem_.head_dim * 4);
    layout.workspace = place(static_cast<int64_t>(graph.graph.workspace_bytes()));
    layout.bytes = end;
    return layout;
  }

  // If row strides require more than dense ones, or no scratch was given.
  std::byte* scratch_for(size_t bytes) {
    if (scratch_ != nullptr && bytes <= scratch_bytes_) return scratch_.get();
    if (bytes > own_.bytes())
      own_ = DeviceMemory(state_->context, bytes, state_->stream, "attention's scratch");
    return own_.data();
  }

  void run_part(Library::Compiled& compiled, const Layout& layout,
                std::span<const TensorView> tensors, std::byte* scratch, int64_t sequence,
                int64_t kv_head) {
    const AttentionGraph& a = compiled.attention;
    const int64_t head = kv_head * shape_.group();
    std::vector<void*> memory(tensors_of_graph(a));
    const auto put = [&](int at, int tensor, int64_t column) {
      const TensorView& view = tensors[tensor];
      memory[at] = static_cast<std::byte*>(view.data) +
                   (sequence * shape_.tokens * view.row_stride + column) * size_of(view.dtype);
    };
    const auto place = [&](int at, size_t offset) {
      if (at >= 0) memory[at] = scratch + offset;
    };
    put(a.q, 0, head * shape_.head_dim);
    put(a.k, 1, kv_head * shape_.head_dim);
    put(a.v, 2, kv_head * shape_.value_dim);
    put(a.y, 3, head * shape_.value_dim);
    place(a.statistics,
          static_cast<size_t>((sequence * shape_.heads + head) * shape_.tokens) * sizeof(float));
    if (problem_.backward) {
      put(a.dy, 5, head * shape_.value_dim);
      put(a.dq, 6, head * shape_.head_dim);
      put(a.dk, 7, kv_head * shape_.head_dim);
      put(a.dv, 8, kv_head * shape_.value_dim);
    }
    place(a.row_sums, layout.row_sums);
    place(a.dq_sums, layout.dq_sums);
    compiled.graph.run(library_->handle, memory, scratch + layout.workspace);
  }

  static size_t tensors_of_graph(const AttentionGraph& a) {
    return static_cast<size_t>(std::max(
               {a.q, a.k, a.v, a.y, a.statistics, a.dy, a.dq, a.dk, a.dv, a.row_sums, a.dq_sums})) +
           1;
  }

  std::shared_ptr<GpuState> state_;
  std::shared_ptr<Library> library_;
  OperationCall call_;
  AttentionShape shape_;
  AttentionProblem problem_;  // of one part; strides of the last run
  std::unique_ptr<LaunchedKernel> transpose_;
  BackendMemory scratch_;
  size_t scratch_bytes_ = 0;
  DeviceMemory own_;
};

}  // namespace

Library::Compiled& Library::compiled(const AttentionProblem& problem) {
  const auto found = graphs.find(problem);
  if (found != graphs.end()) return found->second;
  AttentionGraph attention = attention_graph(problem);
  CompiledGraph graph(handle, std::move(attention.graph));
  return graphs.emplace(problem, Compiled{std::move(attention), std::move(graph)}).first->second;
}

std::unique_ptr<Kernel> make_attention_kernel(std::shared_ptr<GpuState> state,
                                              std::shared_ptr<Library> library,
                                              const OperationCall& call, bool deterministic,
                                              const PartLimits& limits) {
  return std::make_unique<AttentionKernel>(std::move(state), std::move(library), call,
                                           deterministic, limits);
}

}  // namespace coda::gpu::cudnn
