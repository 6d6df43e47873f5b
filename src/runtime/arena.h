// SPDX-License-Identifier: Apache-2.0
// Allocates a plan's own tensors in one arena: temporaries, saved tensors, and results that the
// caller does not bind. Plan steps are numbered through the forward and then the backward. Two
// tensors that are alive in the same step never overlap, and a step's results never overlap its
// operands. So a tensor that is saved late can reuse the memory of earlier temporaries, and a
// gradient can reuse memory that is no longer needed. A temporary that only a loop over row blocks
// uses has the memory of one block. A tensor that is copied to or from the host (Plan::host_copies)
// is alive during the copy too.
//
// Results may also have places in memory that the caller lends (ResultPlaces). Until a step writes
// such a result, other tensors may use its place; then the arena begins with the lent memory, and
// the session's own memory follows.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "coda/plan.h"
#include "coda/session.h"

namespace coda {

enum class Phase : uint8_t { forward, backward };

struct ArenaSlot {
  // In bytes, a multiple of 64. Offsets from lent_bytes on are in the session's own memory.
  int64_t offset = 0;
  int64_t bytes = 0;             // of the tensor
  Phase phase = Phase::forward;  // in which it is written first
  // From the first step that writes it to the last that needs it or must not overwrite it.
  int first_step = 0;
  int last_step = 0;
};

struct ArenaPlan {
  std::map<std::string, ArenaSlot> temporaries;
  std::map<std::string, ArenaSlot> saved;
  std::map<std::string, ArenaSlot> results;  // outputs that are in the arena
  int64_t lent_bytes = 0;
  // Parts of the lent memory without a result, by offset; they are never written.
  std::map<int64_t, int64_t> untouched;
  int64_t saved_bytes = 0;  // all alive at the end of the forward
  // For the other tensors: the size of the arena beyond saved_bytes and the lent memory (negative
  // if many saved tensors are in lent memory); the minimum for any arena (the most that is alive in
  // one step); and the size without any overlap.
  int64_t bytes = 0;
  int64_t live_bytes = 0;
  int64_t temporary_bytes = 0;

  int64_t total_bytes() const { return saved_bytes + bytes; }  // the session's own memory
};

// Saved tensors are kept until the end, so that the backward can run again, unless the backward
// overwrites some of them (spends_saved) or results have places. With `own_results`, outputs that
// no step reads before one writes them are placed too and kept until the end; so are results with
// places. Throws Error if a temporary or saved tensor is read before it is written, if a temporary
// is used in both phases, and if results do not fit their places. Tensors that no step names get no
// slot.
ArenaPlan plan_arena(const Plan& plan, const DimValues& sizes, bool own_results = false,
                     const ResultPlaces& places = {});

// Whether the backward overwrites saved tensors; then each forward allows only one backward.
bool spends_saved(const Plan& plan);

}  // namespace coda
