// SPDX-License-Identifier: Apache-2.0
// The one place that says what a tile can hold. A program's tiles take values that are computed
// column by column, or through one layout of pairs, or summed over groups of columns; they load
// what lies in memory, also as a slice, a repeat or gathered rows. Everything else is made of
// these: a view of a computed value reads it back from memory, behind a call that copies nothing
// and only parts programs; vectors that no finalizer can rearrange become two rows of a tile; what
// a product, a call or the caller needs in memory and what is no tensor there is copied.
//
// Needs: a joint graph as it is rewritten. Promises: equal values, and no operation that a program
// or a finalizer lacks. What does not fit together in one tile is found where programs are written
// (plan/write/emit.h) and comes back as `apart`.
//
// Which values are the largest of themselves (x = max(x), by which the gradient of a maximum finds
// its elements) is told from x as it lies in memory, of which the maximum is taken again. The
// forward's may be of numbers before their rounding, and what is made again, by an inverse or in
// another program, need not have the same bits: then no element would be found, and the gradient be
// lost without a word.
#pragma once

#include <set>
#include <string_view>

#include "rewrite/joint.h"

namespace coda {

// A call of this name computes nothing: its result is its operand, once that has been stored.
inline constexpr std::string_view kStoredCall = "#stored";

// What a result of such a call stands for, or -1.
int stored_value(const Graph& graph, int id);

struct ThroughMemory {
  JointGraph joint;
  std::vector<int> origin;  // by node of `joint`: the node it stands for, or -1
};

// `apart`: nodes of `joint` whose readers load them.
ThroughMemory through_memory(const JointGraph& joint, const std::set<int>& apart);

}  // namespace coda
