// SPDX-License-Identifier: Apache-2.0
// Attention of the newest tokens of a sequence to each other and to cached keys and values, as in
// token-by-token generation. On the CPU, each task computes one query row of one head, and sums in
// fp32 over the keys in ascending order. There are few such rows, so nothing faster is needed. The
// GPU kernel is in device/kernels/attention_with_past.cuh.
#include <algorithm>
#include <cmath>
#include <vector>

#include "coda/error.h"
#include "coda/float16.h"
#include "operations/attention.h"
#include "operations/builtin.h"

namespace coda {
namespace {

// The operands. The optional operand `sinks` and the result y follow.
enum : size_t { kQ, kK, kV, kPastKeys, kPastValues, kLength };

// Heads and scale; tokens are the newest ones.
AttentionShape shape_of(OperationSettings settings, const Dim& rows) {
  settings.sizes["sequence"] = rows;
  settings.attributes["causal"] = 1;
  for (const char* name : {"documents", "key_spans"}) settings.attributes[name] = 0;
  return attention_shape(settings, rows);
}

std::vector<OperationResult> results_with_past(const OperationSettings& settings,
                                               const std::vector<Shape>& in) {
  const AttentionShape a = shape_of(settings, in[kQ].rows);
  const auto must_be = [](const char* name, const Shape& shape, const Shape& wanted) {
    require(shape == wanted,
            std::string(name) + " must be " + wanted.text() + ", not " + shape.text());
  };
  must_be("q", in[kQ], {in[kQ].rows, a.heads * a.head_dim});
  must_be("k", in[kK], {in[kQ].rows, a.kv_heads * a.head_dim});
  must_be("v", in[kV], {in[kQ].rows, a.kv_heads * a.value_dim});
  must_be("past_keys", in[kPastKeys], {in[kPastKeys].rows, in[kK].cols});
  must_be("past_values", in[kPastValues], {in[kPastKeys].rows, in[kV].cols});
  must_be("length", in[kLength], {1, 1});
  if (a.has_sinks) must_be("sinks", in.back(), {1, a.heads});
  return {{{in[kQ].rows, a.heads * a.value_dim}}};
}

// Row `place` of all keys, or values: a past one, or one of the newest.
struct Rows {
  int64_t length;
  int64_t first(const AttentionShape& a, int64_t row) const {
    return a.window == 0 ? 0 : std::max<int64_t>(0, length + row - a.window + 1);
  }
};

int64_t checked_length(double length, int64_t rows) {
  require(length >= 0 && length <= static_cast<double>(rows),
          "attention_with_past: 'length' is " + std::to_string(length) +
              ", but there is room for " + std::to_string(rows) + " tokens");
  return static_cast<int64_t>(length);
}

void evaluate(const OperationSettings& settings, const std::vector<Matrix>& in,
              std::vector<Matrix>& out) {
  const AttentionShape a = shape_of(settings, in[kQ].rows);
  const int64_t length = checked_length(in[kLength].data[0], in[kPastKeys].rows);
  const auto at = [&](size_t past, size_t newest, int64_t place, int64_t column) {
    return place < length ? in[past].at(place, column) : in[newest].at(place - length, column);
  };
  for (int64_t row = 0; row < in[kQ].rows; ++row) {
    for (int64_t head = 0; head < a.heads; ++head) {
      const int64_t kv = head / a.group();
      std::vector<double> scores;
      const int64_t first = Rows{length}.first(a, row), last = length + row + 1;
      for (int64_t j = first; j < last; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < a.head_dim; ++d)
          dot += in[kQ].at(row, head * a.head_dim + d) * at(kPastKeys, kK, j, kv * a.head_dim + d);
        dot *= a.scale;
        scores.push_back(a.soft_cap == 0 ? dot : a.soft_cap * std::tanh(dot / a.soft_cap));
      }
      const double sink = a.has_sinks ? in.back().at(0, head) : -HUGE_VAL;
      const double top = std::max(sink, *std::ranges::max_element(scores));
      double total = std::exp(sink - top);
      for (double& s : scores) total += s = std::exp(s - top);
      for (int64_t d = 0; d < a.value_dim; ++d) {
        double sum = 0;
        for (int64_t j = first; j < last; ++j)
          sum +=
              scores[static_cast<size_t>(j - first)] * at(kPastValues, kV, j, kv * a.value_dim + d);
        out[0].at(row, head * a.value_dim + d) = sum / total;
      }
    }
  }
}

// `count` elements of a row from `first` on, as floats: where they lie, or in `memory`.
const float* floats_of(const TensorView& t, int64_t row, int64_t first, int64_t count,
                       std::vector<float>& memory) {
  const int64_t place = row * t.row_stride + first;
  if (t.dtype == DType::f32) return static_cast<const float*>(t.data) + place;
  const auto* halves = static_cast<const uint16_t*>(t.data) + place;
  const auto widen = t.dtype == DType::bf16 ? float_from_bf16 : float_from_f16;
  memory.resize(static_cast<size_t>(count));
  std::transform(halves, halves + count, memory.begin(), widen);
  return memory.data();
}

// A sum of eight, each of every eighth element: the compiler makes vectors of it.
float dot_product(const float* a, const float* b, int64_t count) {
  float sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int64_t j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

void run_head(const AttentionShape& a, std::span<const TensorView> t, int64_t length, int64_t row,
              int64_t head) {
  thread_local std::vector<float> scores, sums, query, memory;
  const int64_t kv = head / a.group();
  const auto row_of = [&](size_t past, size_t newest, int64_t place, int64_t dim) {
    return place < length ? floats_of(t[past], place, kv * dim, dim, memory)
                          : floats_of(t[newest], place - length, kv * dim, dim, memory);
  };
  const float* q = floats_of(t[kQ], row, head * a.head_dim, a.head_dim, query);
  const int64_t first = Rows{length}.first(a, row), last = length + row + 1;
  scores.resize(static_cast<size_t>(last - first));
  const auto scale = static_cast<float>(a.scale), cap = static_cast<float>(a.soft_cap);
  const float sink =
      a.has_sinks ? static_cast<const float*>(t[a.sinks(t.size() - 1)].data)[head] : -HUGE_VALF;
  float top = sink;
  for (int64_t j = first; j < last; ++j) {
    float s = scale * dot_product(q, row_of(kPastKeys, kK, j, a.head_dim), a.head_dim);
    if (cap != 0) s = cap * std::tanh(s / cap);
    scores[static_cast<size_t>(j - first)] = s;
    top = std::max(top, s);
  }
  sums.assign(static_cast<size_t>(a.value_dim), 0.0F);
  float total = std::exp(sink - top);
  for (int64_t j = first; j < last; ++j) {
    const float p = std::exp(scores[static_cast<size_t>(j - first)] - top);
    const float* v = row_of(kPastValues, kV, j, a.value_dim);
    total += p;
    for (int64_t d = 0; d < a.value_dim; ++d) sums[static_cast<size_t>(d)] += p * v[d];
  }
  const TensorView& result = t.back();
  const int64_t place = row * result.row_stride + head * a.value_dim;
  for (int64_t d = 0; d < a.value_dim; ++d) {
    const float y = sums[static_cast<size_t>(d)] / total;
    if (result.dtype == DType::f32) {
      static_cast<float*>(result.data)[place + d] = y;
    } else {
      static_cast<uint16_t*>(result.data)[place + d] =
          result.dtype == DType::bf16 ? bf16_from_float(y) : f16_from_float(y);
    }
  }
}

CpuKernel prepare(const OperationCall& call, int threads) {
  const AttentionShape shape = shape_of(call.settings, call.tensors[kQ].rows);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (i == kLength) {
      call.check_type(i, {DType::i32});
    } else if (shape.is_of_sinks(i, call.operands)) {
      call.check_type(i, {DType::f32});
    } else {
      call.check_type(i, {DType::f32, DType::bf16, DType::f16});
    }
  }
  const int64_t rows = call.tensors[kQ].rows;
  return [a = shape, rows, threads](std::span<const TensorView> t) {
    const int64_t length =
        checked_length(*static_cast<const int32_t*>(t[kLength].data), t[kPastKeys].rows);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < rows * a.heads; ++task)
      run_head(a, t, length, task / a.heads, task % a.heads);
  };
}

}  // namespace

Operation attention_with_past_operation() {
  Operation operation;
  operation.name = "attention_with_past";
  operation.operands = {"q", "k", "v", "past_keys", "past_values", "length"};
  operation.attributes = attention_operation().attributes;
  operation.attributes.erase("documents");
  operation.attributes.erase("key_spans");
  operation.optional_operands = {"sinks"};
  operation.results = results_with_past;
  operation.evaluate = evaluate;
  operation.cpu = prepare;
  operation.gpu = [](const OperationCall& call) {
    return attention_with_past_kernels(call, shape_of(call.settings, call.tensors[kQ].rows));
  };
  return operation;
}

}  // namespace coda
