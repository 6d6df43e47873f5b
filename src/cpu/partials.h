// SPDX-License-Identifier: Apache-2.0
// Partial reductions over spans of 64 columns or 64 rows, and merging of partials in finalizers.
// The order depends only on the shape: columns of a span in vector lanes; rows and partials one
// after another.
#pragma once

#include <cstdint>
#include <span>

#include "coda/program.h"

namespace coda::cpu {

// The partial of each of `rows` rows over `cols` (1 to 64) columns of one or two planes (src1 may
// be null). Lane l of row i goes to dst[l * lane_stride + i * row_stride].
void row_partial(PartialKind kind, const float* src0, const float* src1, int64_t src_stride,
                 int64_t rows, int64_t cols, float* dst, int64_t row_stride, int64_t lane_stride);

// Adds rows to unfinished column partials: state is [lanes][state_stride], one entry per column.
// `row`: number of rows of the span that are already in the state (0: the state is uninitialised).
void column_partial(PartialKind kind, const float* src, int64_t src_stride, int64_t rows,
                    int64_t cols, int64_t row, float* state, int64_t state_stride);

// Merges `count` partials. Lane l of partial p is partials[l * lane_stride + p * step]; all but the
// last cover `full` elements, the last one `last`. `lane` picks the result of a kind with several.
float combine(PartialKind kind, const float* partials, int64_t count, int64_t step,
              int64_t lane_stride, int64_t full, int64_t last, int lane);

}  // namespace coda::cpu
