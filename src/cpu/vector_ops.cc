// SPDX-License-Identifier: Apache-2.0
// Compiled once per instruction set. The last, partial vector of a row is loaded and stored in
// parts, so that nothing outside the row is accessed and the same code computes every element.
#include "cpu/vector_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vector_ops.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h
#include "hwy/highway.h"

#include "base/philox.h"
#include "base/vector_math-inl.h"
#include "cpu/vector_storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

struct Planes {
  const Source* operands;
  Result result;
};

// Treats the planes as one long row if rows are contiguous and no operand has one value per row.
template <int kArity>
Result as_one_row(const Planes& p) {
  const Result& r = p.result;
  bool is_contiguous = r.stride == r.cols;
  for (int k = 0; k < kArity; ++k) {
    const Source& source = p.operands[k];
    is_contiguous = is_contiguous && source.stride == (source.is_constant_along_row ? 0 : r.cols);
  }
  return is_contiguous ? Result{r.data, 0, 1, r.rows * r.cols} : r;
}

// Calls f(vectors of the kArity operands...) and stores the result, vector by vector. A value that
// is constant along a row is broadcast to a vector.
template <int kArity, class Function>
HWY_INLINE void map(const Planes& p, const Function& f) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Result to = as_one_row<kArity>(p);
  for (int64_t i = 0; i < to.rows; ++i) {
    HWY_ALIGN float constants[kArity][hn::MaxLanes(F32())];
    const float* in[kArity];
    int64_t step[kArity];
    for (int k = 0; k < kArity; ++k) {
      const Source& source = p.operands[k];
      in[k] = source.data + i * source.stride;
      step[k] = source.is_constant_along_row ? 0 : lanes;
      if (!source.is_constant_along_row) continue;
      hn::Store(set(*in[k]), d, constants[k]);
      in[k] = constants[k];
    }
    // The next vector of each operand.
    const auto run = [&](const auto& load) {
      Vec v[3];
      for (int k = 0; k < kArity; ++k) {
        v[k] = load(in[k]);
        in[k] += step[k];
      }
      if constexpr (kArity == 1) return f(v[0]);
      if constexpr (kArity == 2) return f(v[0], v[1]);
      if constexpr (kArity == 3) return f(v[0], v[1], v[2]);
    };
    float* out = to.data + i * to.stride;
    int64_t j = 0;
    for (; j + lanes <= to.cols; j += lanes)
      hn::StoreU(run([&](const float* x) { return hn::LoadU(d, x); }), d, out + j);
    if (j == to.cols) continue;
    const int64_t left = to.cols - j;
    store_part<AsF32>(run([&](const float* x) { return load_part<AsF32>(x, left); }), out + j,
                      left);
  }
}

HWY_INLINE Vec propagate_nan(Vec a, Vec b, Vec value) { return keep_nan(a, keep_nan(b, value)); }

HWY_INLINE Vec one_if(hn::Mask<F32> condition) { return hn::IfThenElseZero(condition, set(1.0f)); }

// Element by element, because it multiplies 64-bit integers; no program consists only of this.
HWY_NOINLINE Vec random_numbers(Vec seed, Vec row, Vec column) {
  HWY_ALIGN float x[3][hn::MaxLanes(F32())];
  hn::Store(seed, F32(), x[0]);
  hn::Store(row, F32(), x[1]);
  hn::Store(column, F32(), x[2]);
  for (size_t i = 0; i < hn::Lanes(F32()); ++i) x[0][i] = random_number(x[0][i], x[1][i], x[2][i]);
  return hn::Load(F32(), x[0]);
}

// Adds 16 random bits below those that bf16 has, and cuts off: see base/stochastic_bf16.h.
HWY_INLINE Vec stochastic_bf16(Vec x, Vec u) {
  const Vec scaled = hn::Mul(u, set(0x1p16f));
  const Vec inside = hn::IfThenElseZero(hn::Gt(scaled, set(0.0f)), scaled);
  const auto noise = hn::ConvertTo(I32(), hn::Min(inside, set(65535.0f)));
  const auto sum = hn::Add(hn::BitCast(I32(), x), noise);
  const Vec rounded = hn::BitCast(F32(), hn::And(sum, hn::Set(I32(), ~0xffff)));
  return hn::IfThenElse(hn::IsFinite(x), rounded, x);
}

void arithmetic_rows(Arithmetic op, const Source* operands, const Result& result) {
  const Planes p{operands, result};
  switch (op) {
    case Arithmetic::add: return map<2>(p, [](Vec a, Vec b) { return hn::Add(a, b); });
    case Arithmetic::subtract: return map<2>(p, [](Vec a, Vec b) { return hn::Sub(a, b); });
    case Arithmetic::multiply_add:
      return map<3>(p, [](Vec a, Vec b, Vec c) { return hn::MulAdd(a, b, c); });
    case Arithmetic::multiply_subtract:
      return map<3>(p, [](Vec a, Vec b, Vec c) { return hn::MulSub(a, b, c); });
    case Arithmetic::subtract_product:
      return map<3>(p, [](Vec a, Vec b, Vec c) { return hn::NegMulAdd(a, b, c); });
  }
}

void elementwise_rows(Elementwise op, const Source* operands, const Result& result) {
  const Planes p{operands, result};
  switch (op) {
    case Elementwise::add: return map<2>(p, [](Vec a, Vec b) { return hn::Add(a, b); });
    case Elementwise::sub: return map<2>(p, [](Vec a, Vec b) { return hn::Sub(a, b); });
    case Elementwise::mul: return map<2>(p, [](Vec a, Vec b) { return hn::Mul(a, b); });
    case Elementwise::div: return map<2>(p, [](Vec a, Vec b) { return hn::Div(a, b); });
    case Elementwise::max:
      return map<2>(p, [](Vec a, Vec b) { return propagate_nan(a, b, hn::Max(a, b)); });
    case Elementwise::min:
      return map<2>(p, [](Vec a, Vec b) { return propagate_nan(a, b, hn::Min(a, b)); });
    case Elementwise::equal: return map<2>(p, [](Vec a, Vec b) { return one_if(hn::Eq(a, b)); });
    case Elementwise::less: return map<2>(p, [](Vec a, Vec b) { return one_if(hn::Lt(a, b)); });
    case Elementwise::select:
      return map<3>(p,
                    [](Vec c, Vec a, Vec b) { return hn::IfThenElse(hn::Eq(c, set(0.0f)), b, a); });
    case Elementwise::exp: return map<1>(p, [](Vec a) { return exp(a); });
    case Elementwise::log: return map<1>(p, [](Vec a) { return log(a); });
    case Elementwise::rsqrt:
      return map<1>(p, [](Vec a) { return hn::Div(set(1.0f), hn::Sqrt(a)); });
    case Elementwise::sqrt: return map<1>(p, [](Vec a) { return hn::Sqrt(a); });
    case Elementwise::recip: return map<1>(p, [](Vec a) { return hn::Div(set(1.0f), a); });
    case Elementwise::sigmoid: return map<1>(p, [](Vec a) { return sigmoid(a); });
    case Elementwise::tanh: return map<1>(p, [](Vec a) { return tanh(a); });
    case Elementwise::erf: return map<1>(p, [](Vec a) { return erf(a); });
    case Elementwise::abs: return map<1>(p, [](Vec a) { return hn::Abs(a); });
    case Elementwise::random:
      return map<3>(p, [](Vec a, Vec b, Vec c) { return random_numbers(a, b, c); });
    case Elementwise::stochastic_bf16:
      return map<2>(p, [](Vec a, Vec b) { return stochastic_bf16(a, b); });
    case Elementwise::neg: return map<1>(p, [](Vec a) { return hn::Neg(a); });
    case Elementwise::silu: return map<1>(p, [](Vec a) { return hn::Mul(a, sigmoid(a)); });
    case Elementwise::gelu:
      return map<1>(p, [](Vec a) {
        const Vec phi = hn::Add(set(1.0f), erf(hn::Mul(a, set(0.70710678118654752f))));
        return hn::Mul(hn::Mul(set(0.5f), a), phi);
      });
    case Elementwise::gelu_tanh:
      // (1 + tanh(u)) / 2 is sigmoid(2 u), which does not cancel for negative x.
      return map<1>(p, [](Vec a) {
        const Vec cubic = hn::MulAdd(hn::Mul(hn::Mul(a, a), a), set(0.044715f), a);
        return hn::Mul(a, sigmoid(hn::Mul(cubic, set(1.5957691216057308f))));
      });
    case Elementwise::relu:
      return map<1>(p, [](Vec a) {
        const Vec zero = set(0.0f);
        return propagate_nan(zero, a, hn::Max(zero, a));
      });
    case Elementwise::less_equal:
      return map<2>(p, [](Vec a, Vec b) { return one_if(hn::Le(a, b)); });
    case Elementwise::not_equal:
      return map<2>(p, [](Vec a, Vec b) { return one_if(hn::Not(hn::Eq(a, b))); });
  }
}

void round_rows(DType dtype, const Source* source, const Result& result) {
  const Planes p{source, result};
  if (dtype == DType::bf16) return map<1>(p, [](Vec v) { return round_to_bf16(v); });
  if (dtype == DType::f16) return map<1>(p, [](Vec v) { return float_of_f16_bits(f16_bits(v)); });
  if (dtype == DType::e4m3) return map<1>(p, [](Vec v) { return stored<AsE4m3>(v); });
  if (dtype == DType::e5m2) return map<1>(p, [](Vec v) { return stored<AsE5m2>(v); });
  if (dtype == DType::u8) return map<1>(p, [](Vec v) { return stored<AsU8>(v); });
  return map<1>(p, [](Vec v) { return v; });
}

// The sum of n floats in a fixed order: lane i adds elements i, i + lanes, ...; then the lanes are
// added, then the rest.
float sum_of(const float* p, int64_t n) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float total = 0;
  int64_t j = 0;
  if (n >= lanes) {
    Vec acc = hn::LoadU(d, p);
    for (j = lanes; j + lanes <= n; j += lanes) acc = hn::Add(acc, hn::LoadU(d, p + j));
    total = hn::GetLane(hn::SumOfLanes(d, acc));
  }
  for (; j < n; ++j) total += p[j];
  return total;
}

void reduce_group_rows(const float* src0, const float* src1, int64_t src_stride, int64_t group,
                       float* dst, int64_t dst_stride, int64_t rows, int64_t groups) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t at = i * src_stride + g * group;
      float total = sum_of(src0 + at, group);
      if (src1 != nullptr) total += sum_of(src1 + at, group);
      dst[i * dst_stride + g] = total;
    }
  }
}

void repeat_group_rows(const float* src, int64_t src_stride, int64_t group, float* dst,
                       int64_t dst_stride, int64_t rows, int64_t groups) {
  for (int64_t i = 0; i < rows; ++i) {
    float* out = dst + i * dst_stride;
    for (int64_t g = 0; g < groups; ++g) {
      const float value = src[i * src_stride + g];
      for (int64_t j = 0; j < group; ++j) out[g * group + j] = value;
    }
  }
}

}  // namespace coda::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coda::cpu {

HWY_EXPORT(elementwise_rows);
HWY_EXPORT(arithmetic_rows);
HWY_EXPORT(round_rows);
HWY_EXPORT(reduce_group_rows);
HWY_EXPORT(repeat_group_rows);

void elementwise(Elementwise op, const Source* operands, const Result& result) {
  HWY_DYNAMIC_DISPATCH(elementwise_rows)(op, operands, result);
}

void arithmetic(Arithmetic op, const Source* operands, const Result& result) {
  HWY_DYNAMIC_DISPATCH(arithmetic_rows)(op, operands, result);
}

void round_to(DType dtype, const Source& source, const Result& result) {
  HWY_DYNAMIC_DISPATCH(round_rows)(dtype, &source, result);
}

void reduce_group(const float* src0, const float* src1, int64_t src_stride, int64_t group,
                  float* dst, int64_t dst_stride, int64_t rows, int64_t groups) {
  HWY_DYNAMIC_DISPATCH(reduce_group_rows)(src0, src1, src_stride, group, dst, dst_stride, rows,
                                          groups);
}

void abs_max_group(const float* src0, const float* src1, int64_t src_stride, int64_t group,
                   float* dst, int64_t dst_stride, int64_t rows, int64_t groups) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t g = 0; g < groups; ++g) {
      float largest = 0;
      for (const float* src : {src0, src1}) {
        if (src == nullptr) continue;
        const float* own = src + i * src_stride + g * group;
        for (int64_t j = 0; j < group; ++j) largest = larger_magnitude(largest, own[j]);
      }
      dst[i * dst_stride + g] = largest;
    }
  }
}

void repeat_group(const float* src, int64_t src_stride, int64_t group, float* dst,
                  int64_t dst_stride, int64_t rows, int64_t groups) {
  HWY_DYNAMIC_DISPATCH(repeat_group_rows)(src, src_stride, group, dst, dst_stride, rows, groups);
}

}  // namespace coda::cpu
#endif  // HWY_ONCE
