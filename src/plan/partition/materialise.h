// SPDX-License-Identifier: Apache-2.0
// Rewrites a joint graph so that programs can compute it; the only code that knows what a tile can
// hold. The tiles of a program hold values that are computed column by column, through one layout
// of pairs, or summed over groups of columns; they load tensors from memory, also as a slice, a
// repeat or gathered rows. Everything else is expressed by these. A view of a computed value is
// read back from memory, after a pseudo-call that copies nothing but separates programs. Vectors
// that no finalizer can rearrange become two rows of a tile. Values that a GEMM, a call or the
// caller needs in memory, and that are not tensors there, are copied.
//
// Requires a rewritten joint graph. Guarantees equal values, and only operations that a program or
// a finalizer supports. Values that do not fit into one tile together are found when programs are
// written (plan/write/emit.h) and come back as `apart`.
//
// Comparisons of a value with its own maximum (x = max(x), by which the gradient of a maximum finds
// its elements) use x as it is in memory and recompute the maximum from it. The forward's maximum
// may be of numbers before rounding, and a recomputed value may have different bits. Then no
// element would equal the maximum, and the gradient would be lost silently.
#pragma once

#include <set>
#include <string_view>

#include "rewrite/joint.h"

namespace coda {

// A call of this name computes nothing: its result is its operand, read back after it was stored.
inline constexpr std::string_view kStoredCall = "#stored";

// The node whose stored value a result of such a call is, or -1.
int stored_value(const Graph& graph, int id);

struct Materialised {
  JointGraph joint;
  std::vector<int> origin;  // by node of `joint`: the original node, or -1
};

// `apart`: nodes of `joint` that their readers must load from memory. `wide`:
// indices of joint.gradients that the caller gets in a wider type than GEMMs read. If a GEMM reads
// such a value too, it is stored a second time for the GEMM.
Materialised materialise(const JointGraph& joint, const std::set<int>& apart,
                         const std::set<size_t>& wide = {});

}  // namespace coda
