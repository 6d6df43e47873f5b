// SPDX-License-Identifier: Apache-2.0
// Where a plan's own tensors lie. Temporaries of a phase share one arena: two that are alive in the
// same step never overlap, and a step's results never overlap its operands. Forward and backward
// use the same arena, one after the other; saved tensors have memory of their own, because they
// live from one to the other. A temporary that only a row loop sees has the memory of one block.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "coda/plan.h"

namespace coda {

enum class Phase : uint8_t { forward, backward };

struct ArenaSlot {
  int64_t offset = 0;  // bytes, a multiple of 64
  int64_t bytes = 0;   // of the tensor
  // Temporaries: the steps of their phase from the one that writes first to the one that reads
  // last.
  Phase phase = Phase::forward;
  int first_step = 0;
  int last_step = 0;
};

struct ArenaPlan {
  std::map<std::string, ArenaSlot> temporaries;
  std::map<std::string, ArenaSlot> saved;
  int64_t bytes = 0;            // of the arena
  int64_t live_bytes = 0;       // most that is alive in one step: no arena could be smaller
  int64_t temporary_bytes = 0;  // all temporaries side by side
  int64_t saved_bytes = 0;
};

// Throws Error if a temporary or saved tensor is read before it is written, or a temporary in both
// phases. Tensors that no step names get no slot.
ArenaPlan plan_arena(const Plan& plan, const DimValues& sizes);

}  // namespace coda
