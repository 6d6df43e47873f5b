// SPDX-License-Identifier: Apache-2.0
// The elementwise kernels, compiled once per instruction set. A kernel is a functor over vectors,
// instantiated for each way its operands may be broadcast; the row loop is outermost because a
// strip's rows are short.
#include "cpu/vector_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vector_ops.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h
#include "hwy/highway.h"

#include "cpu/vector_convert-inl.h"
#include "cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

HWY_INLINE Vec propagate_nan(Vec a, Vec b, Vec value) { return keep_nan(a, keep_nan(b, value)); }

HWY_INLINE Vec one_if(hn::Mask<F32> condition) { return hn::IfThenElseZero(condition, set(1.0f)); }

template <class Body>
void unary_rows(const Body& body, const Source& a, float* dst, int64_t dst_stride, int64_t rows,
                int64_t cols) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < rows; ++i) {
    const float* pa = a.data + i * a.row_stride;
    float* out = dst + i * dst_stride;
    if (a.is_constant_along_columns) {
      const Vec value = body(hn::Set(d, *pa));
      for (int64_t j = 0; j < cols; j += lanes) hn::StoreU(value, d, out + j);
    } else {
      for (int64_t j = 0; j < cols; j += lanes) hn::StoreU(body(hn::LoadU(d, pa + j)), d, out + j);
    }
  }
}

template <bool ConstantA, bool ConstantB, class Body>
void binary_rows(const Body& body, const Source& a, const Source& b, float* dst, int64_t dst_stride,
                 int64_t rows, int64_t cols) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < rows; ++i) {
    const float* pa = a.data + i * a.row_stride;
    const float* pb = b.data + i * b.row_stride;
    float* out = dst + i * dst_stride;
    const Vec ca = hn::Set(d, *pa);
    const Vec cb = hn::Set(d, *pb);
    for (int64_t j = 0; j < cols; j += lanes) {
      Vec va = ca;
      Vec vb = cb;
      if constexpr (!ConstantA) va = hn::LoadU(d, pa + j);
      if constexpr (!ConstantB) vb = hn::LoadU(d, pb + j);
      hn::StoreU(body(va, vb), d, out + j);
    }
  }
}

template <class Body>
void binary(const Body& body, const Source* o, float* dst, int64_t dst_stride, int64_t rows,
            int64_t cols) {
  const bool a = o[0].is_constant_along_columns;
  const bool b = o[1].is_constant_along_columns;
  if (!a && !b) binary_rows<false, false>(body, o[0], o[1], dst, dst_stride, rows, cols);
  if (!a && b) binary_rows<false, true>(body, o[0], o[1], dst, dst_stride, rows, cols);
  if (a && !b) binary_rows<true, false>(body, o[0], o[1], dst, dst_stride, rows, cols);
  if (a && b) binary_rows<true, true>(body, o[0], o[1], dst, dst_stride, rows, cols);
}

// Three operands; which of them are constant along a row is looked up in the loop, where the
// processor predicts it.
template <class Body>
void ternary(const Body& body, const Source* o, float* dst, int64_t dst_stride, int64_t rows,
             int64_t cols) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool a = !o[0].is_constant_along_columns;
  const bool b = !o[1].is_constant_along_columns;
  const bool c = !o[2].is_constant_along_columns;
  for (int64_t i = 0; i < rows; ++i) {
    const float* pa = o[0].data + i * o[0].row_stride;
    const float* pb = o[1].data + i * o[1].row_stride;
    const float* pc = o[2].data + i * o[2].row_stride;
    float* out = dst + i * dst_stride;
    Vec va = hn::Set(d, *pa);
    Vec vb = hn::Set(d, *pb);
    Vec vc = hn::Set(d, *pc);
    for (int64_t j = 0; j < cols; j += lanes) {
      if (a) va = hn::LoadU(d, pa + j);
      if (b) vb = hn::LoadU(d, pb + j);
      if (c) vc = hn::LoadU(d, pc + j);
      hn::StoreU(body(va, vb, vc), d, out + j);
    }
  }
}

void sum_rows(Arithmetic arithmetic, const Source* o, float* dst, int64_t stride, int64_t rows,
              int64_t cols) {
  const auto three = [&](auto body) { ternary(body, o, dst, stride, rows, cols); };
  switch (arithmetic) {
    case Arithmetic::add:
      return binary([](Vec a, Vec b) { return hn::Add(a, b); }, o, dst, stride, rows, cols);
    case Arithmetic::subtract:
      return binary([](Vec a, Vec b) { return hn::Sub(a, b); }, o, dst, stride, rows, cols);
    case Arithmetic::multiply_add:
      return three([](Vec a, Vec b, Vec c) { return hn::MulAdd(a, b, c); });
    case Arithmetic::multiply_subtract:
      return three([](Vec a, Vec b, Vec c) { return hn::MulSub(a, b, c); });
    case Arithmetic::subtract_product:
      return three([](Vec a, Vec b, Vec c) { return hn::NegMulAdd(a, b, c); });
  }
}

void elementwise_rows(Elementwise op, const Source* o, float* dst, int64_t stride, int64_t rows,
                      int64_t cols) {
  auto one = [&](auto body) { unary_rows(body, o[0], dst, stride, rows, cols); };
  auto two = [&](auto body) { binary(body, o, dst, stride, rows, cols); };
  switch (op) {
    case Elementwise::add: return two([](Vec a, Vec b) { return hn::Add(a, b); });
    case Elementwise::sub: return two([](Vec a, Vec b) { return hn::Sub(a, b); });
    case Elementwise::mul: return two([](Vec a, Vec b) { return hn::Mul(a, b); });
    case Elementwise::div: return two([](Vec a, Vec b) { return hn::Div(a, b); });
    case Elementwise::max:
      return two([](Vec a, Vec b) { return propagate_nan(a, b, hn::Max(a, b)); });
    case Elementwise::min:
      return two([](Vec a, Vec b) { return propagate_nan(a, b, hn::Min(a, b)); });
    case Elementwise::equal: return two([](Vec a, Vec b) { return one_if(hn::Eq(a, b)); });
    case Elementwise::less: return two([](Vec a, Vec b) { return one_if(hn::Lt(a, b)); });
    case Elementwise::select:
      return ternary([](Vec c, Vec a, Vec b) { return hn::IfThenElse(hn::Eq(c, set(0.0f)), b, a); },
                     o, dst, stride, rows, cols);
    case Elementwise::exp: return one([](Vec a) { return exp(a); });
    case Elementwise::log: return one([](Vec a) { return log(a); });
    case Elementwise::rsqrt: return one([](Vec a) { return hn::Div(set(1.0f), hn::Sqrt(a)); });
    case Elementwise::sqrt: return one([](Vec a) { return hn::Sqrt(a); });
    case Elementwise::recip: return one([](Vec a) { return hn::Div(set(1.0f), a); });
    case Elementwise::sigmoid: return one([](Vec a) { return sigmoid(a); });
    case Elementwise::tanh: return one([](Vec a) { return tanh(a); });
    case Elementwise::erf: return one([](Vec a) { return erf(a); });
    case Elementwise::neg: return one([](Vec a) { return hn::Neg(a); });
    case Elementwise::silu: return one([](Vec a) { return hn::Mul(a, sigmoid(a)); });
    case Elementwise::gelu:
      return one([](Vec a) {
        const Vec phi = hn::Add(set(1.0f), erf(hn::Mul(a, set(0.70710678118654752f))));
        return hn::Mul(hn::Mul(set(0.5f), a), phi);
      });
    case Elementwise::gelu_tanh:
      // (1 + tanh(u)) / 2 is sigmoid(2 u), which does not cancel for negative x.
      return one([](Vec a) {
        const Vec cubic = hn::MulAdd(hn::Mul(hn::Mul(a, a), a), set(0.044715f), a);
        return hn::Mul(a, sigmoid(hn::Mul(cubic, set(1.5957691216057308f))));
      });
  }
}

void round_rows(DType dtype, const Source& a, float* dst, int64_t stride, int64_t rows,
                int64_t cols) {
  if (dtype == DType::bf16) {
    unary_rows([](Vec v) { return float_of_bf16_bits(bf16_bits(v)); }, a, dst, stride, rows, cols);
  } else if (dtype == DType::f16) {
    unary_rows([](Vec v) { return float_of_f16_bits(f16_bits(v)); }, a, dst, stride, rows, cols);
  } else {
    unary_rows([](Vec v) { return v; }, a, dst, stride, rows, cols);
  }
}

// The sum of n floats in a fixed order: lane i adds the elements i, i + lanes, ...; then the lanes;
// then the rest.
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
HWY_EXPORT(sum_rows);
HWY_EXPORT(round_rows);
HWY_EXPORT(reduce_group_rows);
HWY_EXPORT(repeat_group_rows);

void elementwise(Elementwise op, const Source* operands, float* dst, int64_t dst_stride,
                 int64_t rows, int64_t cols) {
  HWY_DYNAMIC_DISPATCH(elementwise_rows)(op, operands, dst, dst_stride, rows, cols);
}

void sum(Arithmetic arithmetic, const Source* operands, float* dst, int64_t dst_stride,
         int64_t rows, int64_t cols) {
  HWY_DYNAMIC_DISPATCH(sum_rows)(arithmetic, operands, dst, dst_stride, rows, cols);
}

void round_to(DType dtype, const Source& source, float* dst, int64_t dst_stride, int64_t rows,
              int64_t cols) {
  HWY_DYNAMIC_DISPATCH(round_rows)(dtype, source, dst, dst_stride, rows, cols);
}

void reduce_group(const float* src0, const float* src1, int64_t src_stride, int64_t group,
                  float* dst, int64_t dst_stride, int64_t rows, int64_t groups) {
  HWY_DYNAMIC_DISPATCH(reduce_group_rows)(src0, src1, src_stride, group, dst, dst_stride, rows,
                                          groups);
}

void repeat_group(const float* src, int64_t src_stride, int64_t group, float* dst,
                  int64_t dst_stride, int64_t rows, int64_t groups) {
  HWY_DYNAMIC_DISPATCH(repeat_group_rows)(src, src_stride, group, dst, dst_stride, rows, groups);
}

}  // namespace coda::cpu
#endif  // HWY_ONCE
