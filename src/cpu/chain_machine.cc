// SPDX-License-Identifier: Apache-2.0
// Compiled once per instruction set: which handler does what, and the loop over rows and chunks.
#include "cpu/chain_machine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/chain_machine.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h
#include "hwy/highway.h"

#include "base/philox.h"
#include "base/vector_math-inl.h"
#include "cpu/chain_handlers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

HWY_INLINE Vec propagate_nan(Vec a, Vec b, Vec value) { return keep_nan(a, keep_nan(b, value)); }

HWY_INLINE Vec one_if(hn::Mask<F32> condition) { return hn::IfThenElseZero(condition, set(1.0f)); }

Handler erase(Run run) { return reinterpret_cast<Handler>(run); }

template <class Body>
Handler each_of(const HandlerKey& key) {
  return key.is_ragged ? erase(&each<Body, true>) : erase(&each<Body, false>);
}

// The handler for a function of one vector. A function is a closure without captures, so that its
// type alone says it.
template <class Function>
Handler unary(const HandlerKey& key, const Function& /*f*/) {
  return each_of<Unary<Function>>(key);
}

template <class Function, int kWhich>
Handler binary_at(const HandlerKey& key) {
  return key.is_constant[0] ? each_of<Binary<Function, kWhich, Constant>>(key)
                            : each_of<Binary<Function, kWhich, Plane>>(key);
}

template <class Function>
Handler binary(const HandlerKey& key, const Function& /*f*/) {
  return key.which == 0 ? binary_at<Function, 0>(key) : binary_at<Function, 1>(key);
}

template <class Function, int kWhich>
Handler ternary_at(const HandlerKey& key) {
  if (key.is_constant[0]) {
    return key.is_constant[1] ? each_of<Ternary<Function, kWhich, Constant, Constant>>(key)
                              : each_of<Ternary<Function, kWhich, Constant, Plane>>(key);
  }
  return key.is_constant[1] ? each_of<Ternary<Function, kWhich, Plane, Constant>>(key)
                            : each_of<Ternary<Function, kWhich, Plane, Plane>>(key);
}

template <class Function>
Handler ternary(const HandlerKey& key, const Function& /*f*/) {
  if (key.which == 0) return ternary_at<Function, 0>(key);
  if (key.which == 1) return ternary_at<Function, 1>(key);
  return ternary_at<Function, 2>(key);
}

// One by one: integers of 64 bits are multiplied, and no program is made of this alone.
HWY_NOINLINE Vec random_numbers(Vec seed, Vec row, Vec column) {
  HWY_ALIGN float x[3][hn::MaxLanes(F32())];
  hn::Store(seed, F32(), x[0]);
  hn::Store(row, F32(), x[1]);
  hn::Store(column, F32(), x[2]);
  for (size_t i = 0; i < hn::Lanes(F32()); ++i) x[0][i] = random_number(x[0][i], x[1][i], x[2][i]);
  return hn::Load(F32(), x[0]);
}

Handler sum_handler(const HandlerKey& key) {
  switch (key.arithmetic) {
    case Arithmetic::add: break;
    case Arithmetic::subtract: return binary(key, [](Vec a, Vec b) { return hn::Sub(a, b); });
    case Arithmetic::multiply_add:
      return ternary(key, [](Vec a, Vec b, Vec c) { return hn::MulAdd(a, b, c); });
    case Arithmetic::multiply_subtract:
      return ternary(key, [](Vec a, Vec b, Vec c) { return hn::MulSub(a, b, c); });
    case Arithmetic::subtract_product:
      return ternary(key, [](Vec a, Vec b, Vec c) { return hn::NegMulAdd(a, b, c); });
  }
  return binary(key, [](Vec a, Vec b) { return hn::Add(a, b); });
}

Handler elementwise_handler(const HandlerKey& key) {
  switch (key.op) {
    case Elementwise::add: break;
    case Elementwise::sub: return binary(key, [](Vec a, Vec b) { return hn::Sub(a, b); });
    case Elementwise::mul: return binary(key, [](Vec a, Vec b) { return hn::Mul(a, b); });
    case Elementwise::div: return binary(key, [](Vec a, Vec b) { return hn::Div(a, b); });
    case Elementwise::max:
      return binary(key, [](Vec a, Vec b) { return propagate_nan(a, b, hn::Max(a, b)); });
    case Elementwise::min:
      return binary(key, [](Vec a, Vec b) { return propagate_nan(a, b, hn::Min(a, b)); });
    case Elementwise::equal: return binary(key, [](Vec a, Vec b) { return one_if(hn::Eq(a, b)); });
    case Elementwise::less: return binary(key, [](Vec a, Vec b) { return one_if(hn::Lt(a, b)); });
    case Elementwise::select:
      return ternary(
          key, [](Vec c, Vec a, Vec b) { return hn::IfThenElse(hn::Eq(c, set(0.0f)), b, a); });
    case Elementwise::exp: return unary(key, [](Vec a) { return exp(a); });
    case Elementwise::log: return unary(key, [](Vec a) { return log(a); });
    case Elementwise::rsqrt:
      return unary(key, [](Vec a) { return hn::Div(set(1.0f), hn::Sqrt(a)); });
    case Elementwise::sqrt: return unary(key, [](Vec a) { return hn::Sqrt(a); });
    case Elementwise::recip: return unary(key, [](Vec a) { return hn::Div(set(1.0f), a); });
    case Elementwise::sigmoid: return unary(key, [](Vec a) { return sigmoid(a); });
    case Elementwise::tanh: return unary(key, [](Vec a) { return tanh(a); });
    case Elementwise::erf: return unary(key, [](Vec a) { return erf(a); });
    case Elementwise::abs: return unary(key, [](Vec a) { return hn::Abs(a); });
    case Elementwise::random:
      return ternary(key, [](Vec a, Vec b, Vec c) { return random_numbers(a, b, c); });
    case Elementwise::neg: return unary(key, [](Vec a) { return hn::Neg(a); });
    case Elementwise::silu: return unary(key, [](Vec a) { return hn::Mul(a, sigmoid(a)); });
    case Elementwise::gelu:
      return unary(key, [](Vec a) {
        const Vec phi = hn::Add(set(1.0f), erf(hn::Mul(a, set(0.70710678118654752f))));
        return hn::Mul(hn::Mul(set(0.5f), a), phi);
      });
    case Elementwise::gelu_tanh:
      // (1 + tanh(u)) / 2 is sigmoid(2 u), which does not cancel for negative x.
      return unary(key, [](Vec a) {
        const Vec cubic = hn::MulAdd(hn::Mul(hn::Mul(a, a), a), set(0.044715f), a);
        return hn::Mul(a, sigmoid(hn::Mul(cubic, set(1.5957691216057308f))));
      });
    case Elementwise::relu:
      return unary(key, [](Vec a) {
        const Vec zero = set(0.0f);
        return propagate_nan(zero, a, hn::Max(zero, a));
      });
    case Elementwise::less_equal:
      return binary(key, [](Vec a, Vec b) { return one_if(hn::Le(a, b)); });
    case Elementwise::not_equal:
      return binary(key, [](Vec a, Vec b) { return one_if(hn::Not(hn::Eq(a, b))); });
  }
  return binary(key, [](Vec a, Vec b) { return hn::Add(a, b); });
}

Handler round_handler(const HandlerKey& key) {
  if (key.dtype == DType::bf16) return unary(key, [](Vec v) { return round_to_bf16(v); });
  if (key.dtype == DType::f16)
    return unary(key, [](Vec v) { return float_of_f16_bits(f16_bits(v)); });
  if (key.dtype == DType::e4m3) return unary(key, [](Vec v) { return stored<AsE4m3>(v); });
  if (key.dtype == DType::e5m2) return unary(key, [](Vec v) { return stored<AsE5m2>(v); });
  if (key.dtype == DType::u8) return unary(key, [](Vec v) { return stored<AsU8>(v); });
  return unary(key, [](Vec v) { return v; });
}

template <class As>
Handler load_handler(Columns columns) {
  if (columns == Columns::neighbours) return erase(&each<LoadNeighbours<As>, false>);
  return columns == Columns::twos ? erase(&each<LoadTwos<As>, true>)
                                  : erase(&each<LoadRagged<As>, true>);
}

template <class As>
Handler store_handler(Columns columns) {
  if (columns == Columns::neighbours) return erase(&store_neighbours<As>);
  return columns == Columns::twos ? erase(&store_twos<As>) : erase(&each<StoreRagged<As>, true>);
}

template <bool kTwo>
Handler row_sum_handler(bool is_ragged) {
  if constexpr (kChunk % kPartialSpan == 0) {
    return is_ragged ? erase(&row_sum<true, kTwo>) : erase(&row_sum<false, kTwo>);
  }
  return nullptr;
}

Handler handler_of(const HandlerKey& key) {
  switch (key.action) {
    case Action::end: break;
    case Action::fetch:
      return key.is_constant[0] ? each_of<Fetch<Constant>>(key) : each_of<Fetch<Plane>>(key);
    case Action::keep: return each_of<Keep>(key);
    case Action::load:
      return with_type(key.dtype, [&](auto as) { return load_handler<decltype(as)>(key.columns); });
    case Action::store:
      return with_type(key.dtype,
                       [&](auto as) { return store_handler<decltype(as)>(key.columns); });
    case Action::elementwise: return elementwise_handler(key);
    case Action::sum: return sum_handler(key);
    case Action::round: return round_handler(key);
    case Action::row_sum: return row_sum_handler<false>(key.is_ragged);
    case Action::row_sum_of_two: return row_sum_handler<true>(key.is_ragged);
    case Action::column_sum: return each_of<ColumnSum>(key);
  }
  return erase(&end);
}

// to[k] = a[k] + b[k], whole vectors.
HWY_INLINE void add(const std::vector<int64_t>& a, const std::vector<int64_t>& b,
                    std::vector<int64_t>& to) {
  const hn::CappedTag<int64_t, 8> d;
  for (size_t k = 0; k < a.size(); k += hn::Lanes(d)) {
    hn::StoreU(hn::Add(hn::LoadU(d, a.data() + k), hn::LoadU(d, b.data() + k)), d, to.data() + k);
  }
}

void run_rows(const Instruction* whole, const Instruction* ragged, ChainStreams& streams,
              int64_t rows, int64_t cols) {
  const Vec zero = hn::Zero(F32());
  const auto run = [&](const std::vector<int64_t>& at, int64_t left) {
    const Instruction* first = left >= kChunk ? whole : ragged;
    reinterpret_cast<Run>(first->handler)(first, at.data(), left, zero, zero, zero, zero, zero,
                                          zero, zero, zero);
  };
  streams.row = streams.first;
  for (int64_t i = 0; i < rows; ++i) {
    for (const ChainStreams::Gather& g : streams.gathers) {
      streams.row[g.stream] = streams.first[g.stream] + g.rows[i] * g.row_bytes;
    }
    run(streams.row, cols);
    for (int64_t j = kChunk; j < cols; j += kChunk) {
      add(j == kChunk ? streams.row : streams.at, streams.chunk_bytes, streams.at);
      run(streams.at, cols - j);
    }
    add(streams.row, streams.row_bytes, streams.row);
  }
}

ChainMachine machine() { return {kChunk, &handler_of, &run_rows}; }

}  // namespace coda::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coda::cpu {

HWY_EXPORT(machine);

ChainMachine chain_machine() { return HWY_DYNAMIC_DISPATCH(machine)(); }

}  // namespace coda::cpu
#endif  // HWY_ONCE
