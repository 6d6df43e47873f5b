// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU: a call is divided among threads. A task is one sequence and key-value head,
// or, if those are too few for the threads, some of its blocks; attention_blocks.h promises that
// the division does not show in the result.
#include "base/rounding.h"
#include "operations/attention.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "operations/attention_blocks.h"

namespace coda {
namespace cpu {
namespace {

// `lse` is the index of the log-sum-exp.
AttentionShape checked_shape(const OperationCall& call, size_t lse) {
  const AttentionShape shape = attention_shape(call.settings, call.tensors[0].rows);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (shape.has_documents && i == shape.documents(call.operands))
      call.check_type(i, {DType::i32});
    else if (i == lse || shape.is_of_sinks(i, call.operands))
      call.check_type(i, {DType::f32});
    else
      call.check_type(i, {DType::f32, DType::bf16, DType::f16});
  }
  return shape;
}

std::vector<TokenRange> documents_of(const AttentionShape& shape, const TensorView& operand) {
  return checked_documents(shape, [&](int64_t row, int64_t which) {
    return static_cast<const int32_t*>(operand.data)[row * operand.row_stride + which];
  });
}

// One piece of scratch a thread, first touched by it.
class Scratch {
 public:
  Scratch(size_t floats, int threads) : floats_(floats), buffer_(floats * threads * sizeof(float)) {
#pragma omp parallel num_threads(threads)
    for (int t = omp_get_thread_num(); t < threads; t += omp_get_num_threads())
      std::memset(of(t), 0, floats_ * sizeof(float));
  }
  float* of(int thread) const { return buffer_.as<float>() + thread * floats_; }

 private:
  size_t floats_;
  AlignedBuffer buffer_;
};

// Parts into which to divide each of `tasks` so that every thread has about four.
int64_t parts_of(int64_t tasks, int64_t blocks, int threads) {
  if (threads == 1 || tasks >= 4 * threads) return 1;
  return std::min(blocks, ceil_div(4 * threads, tasks));
}

class ForwardKernel {
 public:
  ForwardKernel(const AttentionShape& shape, int threads)
      : threads_(threads), scratch_(attention_forward_scratch(shape), threads) {
    call_.shape = shape;
    call_.documents = sequences_as_documents(shape);
    parts_ = parts_of(shape.sequences * shape.kv_heads, blocks_of(shape), threads);
  }

  void run(std::span<const TensorView> t) {
    const std::span<const TensorView> results = t.last(2);
    call_.q = t[0], call_.k = t[1], call_.v = t[2], call_.y = results[0], call_.lse = results[1];
    if (call_.shape.has_documents) call_.documents = documents_of(call_.shape, t[3]);
    if (call_.shape.has_sinks) call_.sinks = t[call_.shape.sinks(t.size() - 2)];
    const int64_t heads = call_.shape.kv_heads, tasks = call_.shape.sequences * heads * parts_;
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; ++task) {
      const int64_t head = task / parts_;
      attention_forward(call_, head / heads, head % heads, {task % parts_, parts_},
                        scratch_.of(omp_get_thread_num()));
    }
  }

 private:
  AttentionForward call_;
  int threads_;
  int64_t parts_ = 1;
  Scratch scratch_;
};

class BackwardKernel {
 public:
  BackwardKernel(const AttentionShape& shape, int threads)
      : threads_(threads), scratch_(attention_backward_scratch(shape), threads) {
    call_.shape = shape;
    call_.documents = sequences_as_documents(shape);
    // One pass over a head's scores (5 products a block) needs a head a thread; two passes, one for
    // dq and one for dk and dv (7 products), can divide it.
    const int64_t heads = shape.sequences * shape.kv_heads;
    const int64_t rounds = ceil_div(heads, threads);
    const bool one_pass = blocks_of(shape) == 1 || 7 * heads >= 5 * rounds * threads;
    const int64_t parts = one_pass ? 1 : parts_of(heads, blocks_of(shape), threads);
    for (int64_t head = 0; head < heads; ++head) {
      AttentionBackwardTask task{head / shape.kv_heads, head % shape.kv_heads, {}, {}, true, true};
      if (one_pass) {
        tasks_.push_back(task);
        continue;
      }
      for (int64_t part = 0; part < parts; ++part) {
        task.queries = {}, task.keys = {part, parts}, task.want_dq = false, task.want_dkv = true;
        tasks_.push_back(task);
        task.queries = {part, parts}, task.keys = {}, task.want_dq = true, task.want_dkv = false;
        tasks_.push_back(task);
      }
    }
  }

  void run(std::span<const TensorView> t) {
    call_.q = t[0], call_.k = t[1], call_.v = t[2], call_.y = t[3], call_.lse = t[4],
    call_.dy = t[5];
    const std::span<const TensorView> results = t.last(call_.shape.has_sinks ? 4 : 3);
    call_.dq = results[0], call_.dk = results[1], call_.dv = results[2];
    if (call_.shape.has_documents) call_.documents = documents_of(call_.shape, t[6]);
    if (call_.shape.has_sinks) call_.sinks = t[call_.shape.sinks(t.size() - 4)];
    std::vector<double> sink_gradients(
        call_.shape.has_sinks ? call_.shape.sequences * blocks_of(call_.shape) * call_.shape.heads
                              : 0);
    call_.sink_gradients = sink_gradients.data();
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 1)
    for (const AttentionBackwardTask& task : tasks_)
      attention_backward(call_, task, scratch_.of(omp_get_thread_num()));
    if (!call_.shape.has_sinks) return;
    for (int64_t head = 0; head < call_.shape.heads; ++head) {
      double sum = 0;
      for (size_t i = head; i < sink_gradients.size(); i += call_.shape.heads)
        sum += sink_gradients[i];
      static_cast<float*>(results[3].data)[head] = static_cast<float>(sum);
    }
  }

 private:
  AttentionBackward call_;
  int threads_;
  std::vector<AttentionBackwardTask> tasks_;
  Scratch scratch_;
};

}  // namespace
}  // namespace cpu

CpuKernel prepare_attention(const OperationCall& call, int threads) {
  return [kernel = std::make_shared<cpu::ForwardKernel>(cpu::checked_shape(call, call.operands + 1),
                                                        threads)](
             std::span<const TensorView> tensors) { kernel->run(tensors); };
}

CpuKernel prepare_attention_backward(const OperationCall& call, int threads) {
  return [kernel = std::make_shared<cpu::BackwardKernel>(cpu::checked_shape(call, 4), threads)](
             std::span<const TensorView> tensors) { kernel->run(tensors); };
}

}  // namespace coda
