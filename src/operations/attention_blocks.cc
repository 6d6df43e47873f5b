// SPDX-License-Identifier: Apache-2.0
// Flash-style attention in vector code, compiled for each instruction set and picked at run time.
// Inputs are packed as fp32 blocks (keys and values of one head: transposed where a product wants
// them so); scores are kept in units of log 2, so that the exponential is a power of two and the
// scale is in the packed queries.
#include "operations/attention_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "operations/attention_arrays.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operations/attention_blocks.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "base/vector_math-inl.h"
#include "operations/attention_gemm-inl.h"
#include "operations/attention_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::attention::HWY_NAMESPACE {

constexpr size_t kBlock = kAttentionBlock;
constexpr float kLog2e = std::numbers::log2e_v<float>;
constexpr float kLn2 = std::numbers::ln2_v<float>;

struct BlockSpan {
  size_t begin = 0;
  size_t end = 0;
};

// 2^(x - low) for |low| far below 1 and x <= 0 or a little above; 0 below 2^-126; NaN stays NaN.
HWY_INLINE FloatVector exp2(FloatTag d, FloatVector x, FloatVector low) {
  const hn::RebindToSigned<FloatTag> di;
  // Adding 1.5 * 2^23 rounds to a whole number, which then stands in the lowest bits.
  const FloatVector magic = hn::Set(d, 12582912.0f);
  const FloatVector shifted = hn::Add(x, magic);
  const FloatVector whole = hn::Sub(shifted, magic);
  const FloatVector f = hn::Sub(hn::Sub(x, whole), low);  // in [-1/2, 1/2] but for low
  FloatVector p = hn::Set(d, 1.535336188319500e-4f);
  p = hn::MulAdd(p, f, hn::Set(d, 1.339887440266574e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 9.618437357674640e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 5.550332471162809e-2f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.402264791363012e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 6.931472028550421e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const auto exponent =
      hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 127 << 23));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, hn::BitCast(d, exponent)));
}
HWY_INLINE FloatVector exp2(FloatTag d, FloatVector x) { return exp2(d, x, hn::Zero(d)); }

HWY_INLINE Product product(const float* a, size_t a_row, size_t a_inner, const float* b,
                           size_t b_row, float* c, size_t c_row, size_t rows, size_t cols,
                           size_t inner) {
  return {a, a_row, a_inner, b, b_row, c, c_row, rows, cols, inner};
}

// The keys that the queries of one sequence see.
struct Spans {
  const AttentionShape* shape = nullptr;
  const TokenRange* documents = nullptr;  // of the sequence's first token

  TokenRange keys_of(int64_t token) const { return coda::keys_of(*shape, token, documents[token]); }
  // The blocks of keys that some query of a block sees. At least one, so that results are written.
  BlockSpan blocks_of_queries(size_t block) const {
    const int64_t first = static_cast<int64_t>(block * kBlock);
    const int64_t last = std::min<int64_t>(first + kBlock, shape->tokens) - 1;
    const int64_t begin =
        std::min<int64_t>(keys_of(first).first, shape->tokens - 1) / kAttentionBlock;
    return {
        static_cast<size_t>(begin),
        static_cast<size_t>(std::max(begin + 1, ceil_div(keys_of(last).last, kAttentionBlock)))};
  }
};

// Which of a block of keys the rows of a block of queries see.
struct Seen {
  size_t rows = 0;
  size_t keys = 0;
  bool diagonal = false;  // no row i sees a key behind key i
  bool hides = false;     // and some row sees less, from visible() on
  Spans spans;
  int64_t query0 = 0;  // the tokens of row 0 and of key 0
  int64_t key0 = 0;

  // The keys of the block that a row sees.
  TokenRange visible(size_t row) const {
    const TokenRange of = spans.keys_of(query0 + static_cast<int64_t>(row));
    const auto inside = [&](int64_t key) {
      return std::clamp<int64_t>(key - key0, 0, static_cast<int64_t>(last_key(row)));
    };
    return {inside(of.first), inside(of.last)};
  }
  // The number of the block's keys whose scores are computed for a row. Those outside visible() are
  // then masked.
  size_t last_key(size_t row) const { return diagonal ? std::min(keys, row + 1) : keys; }
};

// Scores, in units of log 2, are capped: c * tanh(s / c).
HWY_INLINE void cap_scores(const AttentionArrays& w, const Seen& seen, double soft_cap) {
  const FloatTag d;
  const double cap = soft_cap * std::numbers::log2e;
  const FloatVector high = hn::Set(d, static_cast<float>(cap));
  const FloatVector inverse = hn::Set(d, static_cast<float>(1 / cap));
  for (size_t i = 0; i < seen.rows; ++i) {
    float* HWY_RESTRICT s = w.scores + i * kBlock;
    for (size_t j = 0; j < seen.last_key(i); j += hn::Lanes(d)) {
      const FloatVector x = hn::Mul(hn::Load(d, s + j), inverse);
      hn::Store(hn::Mul(cpu::HWY_NAMESPACE::tanh(x), high), d, s + j);
    }
  }
}

// What a window or a document's end hides becomes minus infinity, whose probability is 0.
HWY_INLINE void hide_scores(const AttentionArrays& w, const Seen& seen) {
  for (size_t i = 0; i < seen.rows; ++i) {
    const TokenRange visible = seen.visible(i);
    float* const scores = w.scores + i * kBlock;
    std::fill(scores, scores + visible.first, -HUGE_VALF);
    std::fill(scores + visible.last, scores + seen.last_key(i), -HUGE_VALF);
  }
}

// Scores of a block become probabilities relative to the row's new maximum; the sums and the factor
// that earlier sums and outputs need are updated. A row that has seen no key yet has the maximum
// minus infinity, and sums of 0.
void online_softmax(const AttentionArrays& w, const Seen& block, bool first) {
  const size_t rows = block.rows;
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < rows; ++i) {
    float* HWY_RESTRICT s = w.scores + i * kBlock;
    const size_t seen = block.last_key(i);
    const size_t whole = seen / lanes * lanes;
    const auto tail = hn::FirstN(d, seen - whole);
    FloatVector top = hn::Set(d, -HUGE_VALF);
    for (size_t j = 0; j < whole; j += lanes) top = hn::Max(top, hn::Load(d, s + j));
    if (whole < seen)
      top = hn::Max(top, hn::IfThenElse(tail, hn::Load(d, s + whole), hn::Set(d, -HUGE_VALF)));
    float largest = hn::GetLane(hn::MaxOfLanes(d, top));
    if (!first) largest = std::max(largest, w.row_max[i]);
    const bool saw_none = block.hides && largest == -HUGE_VALF;
    const FloatVector shift = hn::Set(d, saw_none ? 0.0f : largest);
    FloatVector sum = hn::Zero(d);
    for (size_t j = 0; j < whole; j += lanes) {
      const FloatVector e = exp2(d, hn::Sub(hn::Load(d, s + j), shift));
      hn::Store(e, d, s + j);
      sum = hn::Add(sum, e);
    }
    if (whole < seen) {
      const FloatVector e =
          hn::IfThenElseZero(tail, exp2(d, hn::Sub(hn::Load(d, s + whole), shift)));
      hn::Store(e, d, s + whole);
      sum = hn::Add(sum, e);
    }
    const float total = hn::GetLane(hn::SumOfLanes(d, sum));
    w.rescale[i] = first || saw_none ? 0.0f : w.row_max[i] - largest;
    w.row_max[i] = largest;
    w.row_sum[i] = first ? total : w.row_sum[i];
    w.block_sum[i] = total;
  }
  if (first) return;
  for (size_t i = 0; i < rows; i += lanes) {
    const FloatVector factor = exp2(d, hn::Load(d, w.rescale + i));
    hn::Store(factor, d, w.rescale + i);
    hn::Store(hn::MulAdd(hn::Load(d, w.row_sum + i), factor, hn::Load(d, w.block_sum + i)), d,
              w.row_sum + i);
  }
}

// scores -> P = exp2(score - log_sum), dscores (holding dP) -> P * (dP - delta), times the slope of
// the cap if there is one: 1 - (score / cap)². Zero past what a row sees.
template <bool kCapped>
void softmax_gradient(const AttentionArrays& w, const Seen& block, double soft_cap) {
  const size_t rows = block.rows;
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  const FloatVector inverse = hn::Set(d, static_cast<float>(1 / (soft_cap * std::numbers::log2e)));
  const auto sloped = [&](FloatVector score, FloatVector gradient) {
    if constexpr (!kCapped) return gradient;
    const FloatVector t = hn::Mul(score, inverse);
    // What is hidden has an infinite score and the gradient 0.
    const auto hidden = hn::Lt(score, hn::Set(d, -1e30f));
    return hn::IfThenElse(hidden, hn::Zero(d),
                          hn::Mul(gradient, hn::NegMulAdd(t, t, hn::Set(d, 1.0f))));
  };
  for (size_t i = 0; i < rows; ++i) {
    float* HWY_RESTRICT s = w.scores + i * kBlock;
    float* HWY_RESTRICT ds = w.dscores + i * kBlock;
    const size_t seen = block.last_key(i);
    const size_t whole = seen / lanes * lanes;
    const FloatVector log_sum = hn::Set(d, w.log_sum[i]), low = hn::Set(d, w.log_sum_low[i]);
    const FloatVector delta = hn::Set(d, w.delta[i]);
    size_t j = 0;
    for (; j < whole; j += lanes) {
      const FloatVector score = hn::Load(d, s + j);
      const FloatVector p = exp2(d, hn::Sub(score, log_sum), low);
      hn::Store(p, d, s + j);
      hn::Store(sloped(score, hn::Mul(p, hn::Sub(hn::Load(d, ds + j), delta))), d, ds + j);
    }
    if (whole < seen) {
      const auto tail = hn::FirstN(d, seen - whole);
      const FloatVector score = hn::Load(d, s + j);
      const FloatVector p = exp2(d, hn::Sub(score, log_sum), low);
      const FloatVector g = sloped(score, hn::Mul(p, hn::Sub(hn::Load(d, ds + j), delta)));
      hn::Store(hn::IfThenElseZero(tail, p), d, s + j);
      hn::Store(hn::IfThenElseZero(tail, g), d, ds + j);
      j += lanes;
    }
    if (!block.diagonal) continue;
    for (; j < kBlock; j += lanes) {
      hn::Store(hn::Zero(d), d, s + j);
      hn::Store(hn::Zero(d), d, ds + j);
    }
  }
}

HWY_INLINE size_t rows_in_block(const AttentionShape& shape, size_t block) {
  return std::min<size_t>(kBlock, static_cast<size_t>(shape.tokens) - block * kBlock);
}

HWY_INLINE Seen seen_of(const Spans& spans, size_t i, size_t j) {
  const AttentionShape& shape = *spans.shape;
  Seen seen;
  seen.rows = rows_in_block(shape, i);
  seen.keys = rows_in_block(shape, j);
  seen.diagonal = shape.causal && i == j;
  seen.spans = spans;
  seen.query0 = static_cast<int64_t>(i * kBlock);
  seen.key0 = static_cast<int64_t>(j * kBlock);
  seen.hides = shape.has_documents || seen.visible(seen.rows - 1).first > 0;
  return seen;
}

void forward_task(const AttentionForward& call, int64_t sequence, int64_t kv_head,
                  BlockRange queries, float* scratch) {
  const AttentionArrays w = attention_arrays(call.shape, false, scratch);
  const AttentionShape& shape = call.shape;
  const size_t dim = shape.head_dim, padded = w.padded, blocks = w.blocks;
  const size_t value_dim = shape.value_dim, value_padded = w.value_padded;
  const size_t base = sequence * shape.tokens;
  const Spans spans{&shape, call.documents.data() + base};
  size_t last = queries.first;
  while (last + queries.step < blocks) last += queries.step;
  const size_t needed = spans.blocks_of_queries(last).end;
  for (size_t j = spans.blocks_of_queries(queries.first).begin; j < needed; ++j) {
    const size_t rows = rows_in_block(shape, j);
    pack_rows(call.k, base + j * kBlock, rows, kv_head * dim, dim, 1.0f, w.out, padded);
    transpose_block(w.out, padded, rows, dim, w.keys_t + w.keys_at(j), kBlock);
    pack_rows(call.v, base + j * kBlock, rows, kv_head * value_dim, value_dim, 1.0f,
              w.values + w.values_at(j), value_padded);
  }
  const float scale = static_cast<float>(shape.scale) * kLog2e;
  for (size_t i = queries.first; i < blocks; i += queries.step) {
    const size_t rows = rows_in_block(shape, i), row0 = base + i * kBlock;
    for (int64_t head = kv_head * shape.group(); head < (kv_head + 1) * shape.group(); ++head) {
      pack_rows(call.q, row0, rows, head * dim, dim, scale, w.q, padded);
      const auto [begin, end] = spans.blocks_of_queries(i);
      for (size_t j = begin; j < end; ++j) {
        const Seen seen = seen_of(spans, i, j);
        const bool first = j == begin;
        const Product scores = product(w.q, padded, 1, w.keys_t + w.keys_at(j), kBlock, w.scores,
                                       kBlock, rows, seen.keys, dim);
        Product values = product(w.scores, kBlock, 1, w.values + w.values_at(j), value_padded,
                                 w.out, value_padded, rows, value_dim, seen.keys);
        values.start = first ? Start::zero : Start::scale;
        values.scale = w.rescale;
        if (seen.diagonal)
          multiply<Mask::columns>(scores);
        else
          multiply<Mask::none>(scores);
        if (shape.soft_cap != 0) cap_scores(w, seen, shape.soft_cap);
        if (seen.hides) hide_scores(w, seen);
        online_softmax(w, seen, first);
        if (seen.diagonal)
          multiply<Mask::inner_to>(values);
        else
          multiply<Mask::none>(values);
      }
      const double sink =
          shape.has_sinks ? static_cast<const float*>(call.sinks.data)[head] : -HUGE_VAL;
      for (size_t r = 0; r < rows; ++r) {
        float* lse = static_cast<float*>(call.lse.data) + (row0 + r) * call.lse.row_stride + head;
        const double top = w.row_max[r] * std::numbers::ln2, largest = std::max(top, sink);
        const double factor = largest == top ? 1 : std::exp(top - largest);
        const double sum =
            w.row_sum[r] * factor + (sink == -HUGE_VAL ? 0 : std::exp(sink - largest));
        *lse = static_cast<float>(largest + std::log(sum));
        w.rescale[r] = sum == 0 ? 0.0f : static_cast<float>(factor / sum);
      }
      unpack_rows(w.out, value_padded, w.rescale, 1.0f, call.y, row0, rows, head * value_dim,
                  value_dim);
    }
  }
}

// Packs q, dy, lse and delta of one query block and head.
void load_queries(const AttentionBackward& call, size_t row0, size_t rows, size_t head,
                  const AttentionArrays& w) {
  const FloatTag d;
  const size_t dim = call.shape.head_dim;
  const size_t value_dim = call.shape.value_dim, value_padded = w.value_padded;
  const float scale = static_cast<float>(call.shape.scale) * kLog2e;
  pack_rows(call.y, row0, rows, head * value_dim, value_dim, 1.0f, w.out, value_padded);
  pack_rows(call.dy, row0, rows, head * value_dim, value_dim, 1.0f, w.dy, value_padded);
  pack_rows(call.q, row0, rows, head * dim, dim, scale, w.q, w.padded);
  const float* lse = static_cast<const float*>(call.lse.data) + row0 * call.lse.row_stride + head;
  for (size_t r = 0; r < rows; ++r) {
    FloatVector sum = hn::Zero(d);
    for (size_t c = r * value_padded; c < (r + 1) * value_padded; c += hn::Lanes(d))
      sum = hn::MulAdd(hn::Load(d, w.dy + c), hn::Load(d, w.out + c), sum);
    w.delta[r] = hn::GetLane(hn::SumOfLanes(d, sum));
    const double log_sum = lse[r * call.lse.row_stride] * std::numbers::log2e;
    const bool saw_none = log_sum == -HUGE_VAL;  // its probabilities are 0
    w.log_sum[r] = saw_none ? HUGE_VALF : static_cast<float>(log_sum);
    w.log_sum_low[r] = saw_none ? 0.0f : static_cast<float>(log_sum - w.log_sum[r]);
  }
}

// -sum over the block's queries of p dy·y, where p is the probability of the head's sink.
double sink_gradient(const AttentionBackward& call, size_t rows, size_t head,
                     const AttentionArrays& w) {
  const double sink = static_cast<const float*>(call.sinks.data)[head] * std::numbers::log2e;
  double sum = 0;
  for (size_t r = 0; r < rows; ++r)
    sum -= std::exp2(sink - w.log_sum[r] - w.log_sum_low[r]) * w.delta[r];
  return sum;
}

void backward_task(const AttentionBackward& call, const AttentionBackwardTask& task,
                   float* scratch) {
  const AttentionArrays w = attention_arrays(call.shape, true, scratch);
  const AttentionShape& shape = call.shape;
  const size_t dim = shape.head_dim, padded = w.padded, blocks = w.blocks;
  const size_t value_dim = shape.value_dim, value_padded = w.value_padded;
  const size_t base = task.sequence * shape.tokens;
  const Spans spans{&shape, call.documents.data() + base};
  const size_t key_col = task.kv_head * dim, value_col = task.kv_head * value_dim;
  for (size_t j = task.keys.first; j < blocks; j += task.keys.step) {
    const size_t rows = rows_in_block(shape, j), at = w.keys_at(j);
    pack_rows(call.v, base + j * kBlock, rows, value_col, value_dim, 1.0f, w.out, value_padded);
    transpose_block(w.out, value_padded, rows, value_dim, w.values_t + w.values_at(j), kBlock);
    pack_rows(call.k, base + j * kBlock, rows, key_col, dim, 1.0f, w.keys + at, padded);
    transpose_block(w.keys + at, padded, rows, dim, w.keys_t + at, kBlock);
    if (!task.want_dkv) continue;
    std::fill_n(w.dk + at, kBlock * padded, 0.0f);
    std::fill_n(w.dv + w.values_at(j), kBlock * value_padded, 0.0f);
  }
  const size_t first_head = task.kv_head * shape.group();
  for (size_t head = first_head; head < first_head + shape.group(); ++head) {
    for (size_t i = task.queries.first; i < blocks; i += task.queries.step) {
      const size_t rows = rows_in_block(shape, i), row0 = base + i * kBlock;
      const auto [first, end] = spans.blocks_of_queries(i);
      const size_t step = task.keys.step;
      size_t begin = task.keys.first;
      while (begin < first) begin += step;
      if (begin >= end) continue;
      load_queries(call, row0, rows, head, w);
      if (shape.has_sinks && task.want_dq) {
        call.sink_gradients[(task.sequence * blocks + i) * shape.heads + head] =
            sink_gradient(call, rows, head, w);
      }
      for (size_t j = begin; j < end; j += step) {
        const Seen seen = seen_of(spans, i, j);
        const size_t keys = seen.keys, at = w.keys_at(j), value_at = w.values_at(j);
        const Product s =
            product(w.q, padded, 1, w.keys_t + at, kBlock, w.scores, kBlock, rows, keys, dim);
        const Product dp = product(w.dy, value_padded, 1, w.values_t + value_at, kBlock, w.dscores,
                                   kBlock, rows, keys, value_dim);
        if (seen.diagonal) {
          multiply<Mask::columns>(s);
          multiply<Mask::columns>(dp);
        } else {
          multiply<Mask::none>(s);
          multiply<Mask::none>(dp);
        }
        if (shape.soft_cap != 0) cap_scores(w, seen, shape.soft_cap);
        if (seen.hides) hide_scores(w, seen);
        if (shape.soft_cap != 0)
          softmax_gradient<true>(w, seen, shape.soft_cap);
        else
          softmax_gradient<false>(w, seen, 1);
        if (task.want_dkv) {
          Product dv = product(w.scores, 1, kBlock, w.dy, value_padded, w.dv + value_at,
                               value_padded, keys, value_dim, rows);
          Product dk =
              product(w.dscores, 1, kBlock, w.q, padded, w.dk + at, padded, keys, dim, rows);
          dv.start = dk.start = Start::add;
          if (seen.diagonal) {
            multiply<Mask::inner_from>(dv);
            multiply<Mask::inner_from>(dk);
          } else {
            multiply<Mask::none>(dv);
            multiply<Mask::none>(dk);
          }
        }
        if (task.want_dq) {
          Product dq =
              product(w.dscores, kBlock, 1, w.keys + at, padded, w.out, padded, rows, dim, keys);
          dq.start = j == begin ? Start::zero : Start::add;
          if (seen.diagonal)
            multiply<Mask::inner_to>(dq);
          else
            multiply<Mask::none>(dq);
        }
      }
      if (task.want_dq)
        unpack_rows(w.out, padded, nullptr, static_cast<float>(shape.scale), call.dq, row0, rows,
                    head * dim, dim);
    }
  }
  if (!task.want_dkv) return;
  for (size_t j = task.keys.first; j < blocks; j += task.keys.step) {
    const size_t rows = rows_in_block(shape, j), row0 = base + j * kBlock;
    unpack_rows(w.dv + w.values_at(j), value_padded, nullptr, 1.0f, call.dv, row0, rows, value_col,
                value_dim);
    unpack_rows(w.dk + w.keys_at(j), padded, nullptr, kLn2, call.dk, row0, rows, key_col, dim);
  }
}

}  // namespace coda::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coda::cpu {
namespace attention {
HWY_EXPORT(forward_task);
HWY_EXPORT(backward_task);
}  // namespace attention

size_t attention_forward_scratch(const AttentionShape& shape) {
  return attention_arrays(shape, false, nullptr).size;
}

size_t attention_backward_scratch(const AttentionShape& shape) {
  return attention_arrays(shape, true, nullptr).size;
}

void attention_forward(const AttentionForward& call, int64_t sequence, int64_t kv_head,
                       BlockRange queries, float* scratch) {
  HWY_DYNAMIC_DISPATCH(attention::forward_task)(call, sequence, kv_head, queries, scratch);
}

void attention_backward(const AttentionBackward& call, const AttentionBackwardTask& task,
                        float* scratch) {
  HWY_DYNAMIC_DISPATCH(attention::backward_task)(call, task, scratch);
}

}  // namespace coda::cpu
#endif  // HWY_ONCE
