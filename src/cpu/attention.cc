// SPDX-License-Identifier: Apache-2.0
// Checks an attention call and divides it among threads. A task is one sequence and key-value head,
// or, if those are too few for the threads, some of its blocks; attention_blocks.h promises that
// the division does not show in the result.
#include "cpu/attention.h"

#include <omp.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "coda/error.h"
#include "runtime/aligned_buffer.h"

namespace coda::cpu {
namespace {

double attribute(const OpaqueCall& call, const char* name) {
  const auto found = call.attributes.find(name);
  require(found != call.attributes.end(), call.function + ": attribute '" + name + "' is missing");
  return found->second;
}

int64_t positive_attribute(const OpaqueCall& call, const char* name) {
  const double value = attribute(call, name);
  require(value >= 1 && value < 1e9 && value == std::floor(value),
          call.function + ": attribute '" + name + "' must be a positive whole number, not " +
              std::to_string(value));
  return static_cast<int64_t>(value);
}

void check_operand(const OpaqueCall& call, const TensorDecl& decl, const DimValues& sizes,
                   int64_t rows, int64_t cols, bool is_lse) {
  const PhysicalShape given = physical_shape(decl, sizes);
  require(decl.kind == TensorKind::dense && given.rows == rows && given.cols == cols,
          call.function + ": '" + decl.name + "' is [" + std::to_string(given.rows) + ", " +
              std::to_string(given.cols) + "], not [" + std::to_string(rows) + ", " +
              std::to_string(cols) + "]");
  require(decl.dtype == DType::f32 || (decl.dtype == DType::bf16 && !is_lse),
          call.function + ": '" + decl.name + "' is " + std::string(name_of(decl.dtype)) +
              (is_lse ? "; it must be f32" : "; it must be f32 or bf16"));
}

// Operand i of "qkv..." has as many columns as its letter says: q (also y and their gradients), k
// (also v), l (lse).
AttentionShape checked_shape(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                             const DimValues& sizes, std::string_view letters) {
  const int64_t rows = physical_shape(tensors[0], sizes).rows;
  const AttentionShape shape = attention_shape(call, rows, sizes);
  for (size_t i = 0; i < letters.size(); ++i) {
    const bool is_lse = letters[i] == 'l';
    const int64_t cols = is_lse              ? shape.heads
                         : letters[i] == 'q' ? shape.heads * shape.head_dim
                                             : shape.kv_heads * shape.head_dim;
    check_operand(call, tensors[i], sizes, rows, cols, is_lse);
  }
  return shape;
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
  return std::min(blocks, (4 * threads + tasks - 1) / tasks);
}

class ForwardKernel : public Kernel {
 public:
  ForwardKernel(const AttentionShape& shape, int threads)
      : threads_(threads), scratch_(attention_forward_scratch(shape), threads) {
    call_.shape = shape;
    parts_ = parts_of(shape.sequences * shape.kv_heads, shape.blocks(), threads);
  }

  void run(std::span<const TensorView> t) override {
    call_.q = t[0], call_.k = t[1], call_.v = t[2], call_.y = t[3], call_.lse = t[4];
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

class BackwardKernel : public Kernel {
 public:
  BackwardKernel(const AttentionShape& shape, int threads)
      : threads_(threads), scratch_(attention_backward_scratch(shape), threads) {
    call_.shape = shape;
    // One pass over a head's scores (5 products a block) needs a head a thread; two passes, one for
    // dq and one for dk and dv (7 products), can divide it.
    const int64_t heads = shape.sequences * shape.kv_heads;
    const int64_t rounds = (heads + threads - 1) / threads;
    const bool one_pass = shape.blocks() == 1 || 7 * heads >= 5 * rounds * threads;
    const int64_t parts = one_pass ? 1 : parts_of(heads, shape.blocks(), threads);
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

  void run(std::span<const TensorView> t) override {
    call_.q = t[0], call_.k = t[1], call_.v = t[2], call_.y = t[3], call_.lse = t[4],
    call_.dy = t[5];
    call_.dq = t[6], call_.dk = t[7], call_.dv = t[8];
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 1)
    for (const AttentionBackwardTask& task : tasks_)
      attention_backward(call_, task, scratch_.of(omp_get_thread_num()));
  }

 private:
  AttentionBackward call_;
  int threads_;
  std::vector<AttentionBackwardTask> tasks_;
  Scratch scratch_;
};

}  // namespace

AttentionShape attention_shape(const OpaqueCall& call, int64_t rows, const DimValues& sizes) {
  AttentionShape shape;
  shape.heads = positive_attribute(call, "heads");
  shape.kv_heads = positive_attribute(call, "kv_heads");
  shape.head_dim = positive_attribute(call, "head_dim");
  shape.scale = attribute(call, "scale");
  shape.causal = attribute(call, "causal") != 0;
  require(shape.heads % shape.kv_heads == 0,
          call.function + ": heads (" + std::to_string(shape.heads) +
              ") must be a multiple of kv_heads (" + std::to_string(shape.kv_heads) + ")");
  require(std::isfinite(shape.scale), call.function + ": attribute 'scale' must be finite");
  const auto sequence = call.sizes.find("sequence");
  require(sequence != call.sizes.end(), call.function + ": size 'sequence' is missing");
  shape.tokens = sequence->second.evaluate(sizes);
  require(shape.tokens > 0 && rows % shape.tokens == 0,
          call.function + ": " + std::to_string(rows) +
              " rows are no whole number of sequences of " + std::to_string(shape.tokens) +
              " tokens");
  shape.sequences = rows / shape.tokens;
  return shape;
}

std::unique_ptr<Kernel> prepare_attention(const OpaqueCall& call,
                                          std::span<const TensorDecl> tensors,
                                          const DimValues& sizes, int threads) {
  return std::make_unique<ForwardKernel>(checked_shape(call, tensors, sizes, "qkkql"), threads);
}

std::unique_ptr<Kernel> prepare_attention_backward(const OpaqueCall& call,
                                                   std::span<const TensorDecl> tensors,
                                                   const DimValues& sizes, int threads) {
  return std::make_unique<BackwardKernel>(checked_shape(call, tensors, sizes, "qkkqlqqkk"),
                                          threads);
}

}  // namespace coda::cpu
