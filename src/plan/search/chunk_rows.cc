// SPDX-License-Identifier: Apache-2.0
#include "plan/search/chunk_rows.h"

#include <algorithm>
#include <cstdio>

#include "base/rounding.h"
#include "coda/program.h"

namespace coda {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kWholeUpTo = 256 * kMiB;
constexpr int64_t kBlock = 128 * kMiB;  // smaller ones read the weight too often
constexpr int64_t kMostBlocks = 8;

// Chunks end where partials along columns do, so that those are the same for any chunk.
int64_t in_spans(int64_t rows) { return partial_spans(rows) * kPartialSpan; }

std::string mb(int64_t bytes) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return buffer;
}

}  // namespace

ChunkRows choose_chunk_rows(const JointGraph& joint, const CompileOptions& options) {
  if (joint.chunked.widest < 0) return {0, joint.chunked.refusal};
  if (options.chunk_rows > 0) return {in_spans(options.chunk_rows)};
  const Shape& shape = joint.graph->node(joint.chunked.widest).shape;
  const int64_t all = shape.rows.evaluate(options.sizes);
  const int64_t row = shape.cols.evaluate(options.sizes) * size_of(options.storage);
  if (all * row <= kWholeUpTo) {
    return {0, shape.text() + " takes " + mb(all * row) + ", chunks begin above " + mb(kWholeUpTo)};
  }
  const int64_t rows = in_spans(std::max(ceil_div(kBlock, row), all / kMostBlocks));
  int64_t sums = 0;
  for (int id : joint.chunked.sums) {
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
