// SPDX-License-Identifier: Apache-2.0
// The automatic rule weighs memory against reading weights, or updating gradients, once per block.
#include "plan/search/loss_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "base/rounding.h"
#include "coda/program.h"

namespace coda {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kWholeUpTo = 256 * kMiB;
constexpr int64_t kBlock = 128 * kMiB;  // smaller blocks read the weight too often
constexpr int64_t kMostBlocks = 8;
// The largest share of a gradient's GEMM time that may be spent on adding to it, because the fp32
// gradient is read and written once per block. For Objective::memory there are two blocks at least.
constexpr double kMostAdding = 1.0 / 6;

// Blocks end at partial boundaries, so that column partials do not depend on the block size.
int64_t in_spans(int64_t rows) { return partial_spans(rows) * kPartialSpan; }

// 8 bytes per element compared with two operations per row.
int64_t rows_for_sums(const Rates& rates) {
  const double rows = 8 / rates.bytes_per_second / (2 / rates.flops_per_second) / kMostAdding;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::ceil(rows))));
}

std::string mb(int64_t bytes) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return buffer;
}

}  // namespace

LossRows choose_loss_rows(const JointGraph& joint, const CompileOptions& options) {
  if (joint.row_blocks.widest < 0) return {0, joint.row_blocks.refusal};
  if (options.loss_rows > 0) return {in_spans(options.loss_rows)};
  const Shape& shape = joint.graph->node(joint.row_blocks.widest).shape;
  const int64_t all = shape.rows.evaluate(options.sizes);
  const int64_t row = shape.cols.evaluate(options.sizes) * size_of(options.storage);
  if (all * row <= kWholeUpTo) {
    return {0, shape.text() + " takes " + mb(all * row) + ", blocks begin above " + mb(kWholeUpTo)};
  }
  const int64_t many = std::max(all, -options.loss_rows);
  int64_t rows = in_spans(std::max(ceil_div(kBlock, row), many / kMostBlocks));
  if (!joint.row_blocks.sums.empty()) {
    const int64_t most =
        options.objective == Objective::speed ? many : in_spans(ceil_div(many, int64_t{2}));
    rows = std::max(rows, std::min(rows_for_sums(options.rates), most));
  }
  int64_t sums = 0;
  for (int id : joint.row_blocks.sums) {
    const Shape& sum = joint.graph->node(id).shape;
    sums +=
        sum.rows.evaluate(options.sizes) * sum.cols.evaluate(options.sizes) * size_of(DType::f32);
  }
  const int64_t saved = (all - std::min(rows, all)) * row;
  if (saved <= sums) {
    return {0, "they would save " + mb(saved) + ", and their sums in fp32 take " + mb(sums)};
  }
  return {rows};
}

}  // namespace coda
