// SPDX-License-Identifier: Apache-2.0
// Where a plan's own tensors lie: temporaries, what the forward saves, and results that the caller
// does not bind, in one arena. Steps are counted through the forward and on through the backward;
// two tensors that are alive in the same step never overlap, and a step's results never overlap its
// operands. So what is saved late has room for earlier temporaries, and a gradient lies where
// something was that is done with. A temporary that only a loop over row
// chunks sees has the memory of one chunk.
//
// Results may also have places in memory that the caller lends (ResultPlaces). Until a step writes
// such a result, other tensors may lie there: the arena begins with the lent memory then, and the
// session's own lies behind it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "coda/plan.h"
#include "coda/session.h"

namespace coda {

enum class Phase : uint8_t { forward, backward };

struct ArenaSlot {
  // In bytes, a multiple of 64: from lent_bytes on in the session's own memory.
  int64_t offset = 0;
  int64_t bytes = 0;             // of the tensor
  Phase phase = Phase::forward;  // in which it is written first
  // From the step that writes first to the last that needs it, or that must leave it as it is.
  int first_step = 0;
  int last_step = 0;
};

struct ArenaPlan {
  std::map<std::string, ArenaSlot> temporaries;
  std::map<std::string, ArenaSlot> saved;
  std::map<std::string, ArenaSlot> results;  // outputs that are the arena's
  int64_t lent_bytes = 0;
  // Of the lent memory what no result has, by offset: it stays as it is.
  std::map<int64_t, int64_t> untouched;
  int64_t saved_bytes = 0;  // all alive as the forward ends
  // Of the others: what the arena has beside saved_bytes and what is lent (below 0 where much of
  // what is saved lies in lent memory), the least that any arena could have (most that is alive in
  // one step), and what they would take side by side.
  int64_t bytes = 0;
  int64_t live_bytes = 0;
  int64_t temporary_bytes = 0;

  int64_t total_bytes() const { return saved_bytes + bytes; }  // of the session's own
};

// What was saved is kept to the end, so that the backward can run again, unless the backward itself
// stores over some of it (see spends_saved), or results have places. With `own_results`, outputs
// that no step reads before one has written them are placed too, and kept to the end; so are those
// that have places. Throws Error if a temporary or saved tensor is read before it is written, a
// temporary in both phases, or if results do not fit their places. Tensors that no step names get
// no slot.
ArenaPlan plan_arena(const Plan& plan, const DimValues& sizes, bool own_results = false,
                     const ResultPlaces& places = {});

// Whether the backward writes over what the forward wrote, temporaries aside: it then runs once for
// each forward.
bool spends_saved(const Plan& plan);

}  // namespace coda
