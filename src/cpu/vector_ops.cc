// SPDX-License-Identifier: Apache-2.0
// An elementwise operation is a chain of one, chunk by chunk; the last elements go through buffers,
// so that nothing behind them is touched. Groups of columns have kernels of their own.
#include "cpu/vector_ops.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vector_ops.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h
#include "hwy/highway.h"

#include "base/vector_math-inl.h"
#include "cpu/chain_machine.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

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

HWY_EXPORT(reduce_group_rows);
HWY_EXPORT(repeat_group_rows);

namespace {

// dst[j] = what `key` says of up to three operands.
void run_one(HandlerKey key, const Source* operands, int count, float* dst, int64_t all) {
  const ChainMachine machine = chain_machine();
  for (int k = 1; k < count; ++k) key.is_constant[k - 1] = operands[k].is_scalar;
  HandlerKey fetch{Action::fetch};
  fetch.is_constant[0] = operands[0].is_scalar;
  // Streams 0, 1 and 2 are the operands, 3 is the result.
  const Instruction code[] = {{machine.handler(fetch), 0},
                              {machine.handler(key), 1, 2},
                              {machine.handler({Action::keep}), 3},
                              {machine.handler({Action::end})}};
  ChainStreams streams(4);
  alignas(64) float rest[4][kWidestChunk] = {};
  for (int64_t j = 0; j < all; j += machine.columns) {
    const int64_t n = std::min(machine.columns, all - j);
    const bool is_whole = n == machine.columns;
    for (int k = 0; k < count; ++k) {
      const Source& source = operands[k];
      const float* data = source.is_scalar ? source.data : source.data + j;
      if (!is_whole) std::copy_n(data, source.is_scalar ? 1 : n, rest[k]);
      streams.first[k] = address(is_whole ? data : rest[k]);
    }
    streams.first[3] = address(is_whole ? dst + j : rest[3]);
    machine.run(code, code, streams, 1, n);
    if (!is_whole) std::copy_n(rest[3], n, dst + j);
  }
}

}  // namespace

void elementwise(Elementwise op, const Source* operands, float* dst, int64_t n) {
  HandlerKey key{Action::elementwise};
  key.op = op;
  run_one(key, operands, info(op).arity, dst, n);
}

void round_to(DType dtype, const float* source, float* dst, int64_t n) {
  HandlerKey key{Action::round};
  key.dtype = dtype;
  const Source operand{source};
  run_one(key, &operand, 1, dst, n);
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
