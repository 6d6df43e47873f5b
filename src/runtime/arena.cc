// SPDX-License-Identifier: Apache-2.0
// Offline best fit: the largest tensor first, each into the tightest gap among those that are alive
// with it. Where that takes more than is alive at once, what lies at the end goes first, and all is
// placed again.
#include "runtime/arena.h"

#include <algorithm>
#include <set>
#include <vector>

#include "coda/error.h"
#include "plan/row_loop.h"
#include "plan/step_tensors.h"
#include "runtime/aligned_buffer.h"
#include "runtime/backend.h"

namespace coda {
namespace {

int64_t aligned(int64_t bytes) {
  const int64_t line = kCacheLine;
  return (bytes + line - 1) / line * line;
}

int64_t bytes_of(const TensorDecl& decl, const DimValues& sizes) {
  const PhysicalShape shape = physical_shape(decl, sizes);
  return shape.rows * shape.cols * size_of(decl.dtype);
}

bool alive_together(const ArenaSlot& a, const ArenaSlot& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

// The lowest offset of the smallest gap between `placed` (those alive with `slot`) that holds it,
// else their end.
int64_t best_fit(const ArenaSlot& slot, std::vector<const ArenaSlot*> placed) {
  std::sort(placed.begin(), placed.end(),
            [](const ArenaSlot* a, const ArenaSlot* b) { return a->offset < b->offset; });
  int64_t end = 0, best = -1, best_gap = 0;
  for (const ArenaSlot* other : placed) {
    const int64_t gap = other->offset - end;
    if (gap >= slot.bytes && (best < 0 || gap < best_gap)) best = end, best_gap = gap;
    end = std::max(end, aligned(other->offset + other->bytes));
  }
  return best >= 0 ? best : end;
}

// Gives every slot its offset, in this order; returns the bytes they need together.
int64_t place_in_order(const std::vector<ArenaSlot*>& slots) {
  std::vector<const ArenaSlot*> done;
  int64_t total = 0;
  for (ArenaSlot* slot : slots) {
    std::vector<const ArenaSlot*> neighbours;
    for (const ArenaSlot* other : done)
      if (alive_together(*slot, *other)) neighbours.push_back(other);
    slot->offset = best_fit(*slot, std::move(neighbours));
    done.push_back(slot);
    total = std::max(total, aligned(slot->offset + slot->bytes));
  }
  return total;
}

// Gives every slot of one phase its offset; returns the bytes they need together, `least` at best.
int64_t place(std::vector<ArenaSlot*> slots, int64_t least) {
  std::stable_sort(slots.begin(), slots.end(), [](const ArenaSlot* a, const ArenaSlot* b) {
    if (a->bytes != b->bytes) return a->bytes > b->bytes;
    return a->first_step < b->first_step;
  });
  int64_t total = place_in_order(slots);
  std::vector<ArenaSlot*> best = slots;
  // Placing takes the square of their number: a large model's plan is placed fewer times.
  constexpr size_t kMostWork = 1 << 20;
  constexpr size_t kMostTries = 32;
  size_t tries = std::min(kMostTries, kMostWork / (slots.size() * slots.size() + 1));
  for (int64_t now = total; total > least && tries > 0; --tries) {
    const auto last = std::find_if(slots.begin(), slots.end(), [&](const ArenaSlot* slot) {
      return aligned(slot->offset + slot->bytes) == now;
    });
    std::rotate(slots.begin(), last, last + 1);
    now = place_in_order(slots);
    if (now < total) {
      total = now;
      best = slots;
    }
  }
  return place_in_order(best);
}

int64_t most_alive(const std::vector<ArenaSlot*>& slots, int steps) {
  int64_t most = 0;
  for (int step = 0; step < steps; ++step) {
    int64_t alive = 0;
    for (const ArenaSlot* slot : slots)
      if (slot->first_step <= step && step <= slot->last_step) alive += aligned(slot->bytes);
    most = std::max(most, alive);
  }
  return most;
}

using TensorsByName = std::map<std::string_view, const PlanTensor*>;

// The steps of the loop that step i stands in, itself outside of any.
std::pair<int, int> loop_around(const std::vector<PlanStep>& steps, int i) {
  int first = i, last = i;
  const int loop = steps[i].loop;
  while (loop >= 0 && first > 0 && steps[first - 1].loop == loop) --first;
  while (loop >= 0 && last + 1 < static_cast<int>(steps.size()) && steps[last + 1].loop == loop)
    ++last;
  return {first, last};
}

// Finds the slots of temporaries and saved tensors, without offsets, in the order in which steps
// name them. What a loop sees of a tensor that is not its own is alive from the loop's first step
// to its last: blocks follow one another.
void find_lifetimes(const Plan& plan, const std::vector<PlanStep>& steps, Phase phase,
                    const TensorsByName& tensors_by_name, const DimValues& sizes, ArenaPlan& arena,
                    std::set<std::string>& written) {
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    const auto [loop_first, loop_last] = loop_around(steps, i);
    const std::vector<StepTensor> tensors = step_tensors(steps[i]);
    for (const StepTensor& use : tensors) {
      const auto found = tensors_by_name.find(use.name);
      require(found != tensors_by_name.end(), "step '" + steps[i].name + "' names '" + use.name +
                                                  "', which is no tensor of the plan");
      // A view lives in what it views.
      const PlanTensor* owner = found->second;
      while (!owner->view_of.empty()) owner = tensors_by_name.at(owner->view_of);
      const PlanTensor& tensor = *owner;
      const std::string& name = tensor.decl.name;
      const bool is_saved = tensor.role == TensorRole::saved;
      if (!is_saved && tensor.role != TensorRole::temporary) continue;
      require(!use.read || written.contains(name),
              "step '" + steps[i].name + "' reads '" + use.name + "' before any step writes it");
      auto& slots = is_saved ? arena.saved : arena.temporaries;
      require(tensor.loop < 0 || tensor.loop == steps[i].loop,
              "step '" + steps[i].name + "' names '" + use.name + "', which only a loop sees");
      const int64_t bytes =
          tensor.loop < 0
              ? bytes_of(tensor.decl, sizes)
              : bytes_of(tensor.decl, sizes_of_block(plan.loops[tensor.loop], sizes, 0));
      const auto [slot, is_new] =
          slots.try_emplace(name, ArenaSlot{0, bytes, phase, tensor.loop < 0 ? loop_first : i, i});
      require(is_saved || slot->second.phase == phase,
              "step '" + steps[i].name + "' of the backward uses '" + use.name +
                  "', a temporary of the forward; it must be saved");
      slot->second.last_step = tensor.loop < 0 ? loop_last : i;
    }
    for (const StepTensor& use : tensors) {
      if (!use.written) continue;
      const PlanTensor* owner = tensors_by_name.at(use.name);
      while (!owner->view_of.empty()) owner = tensors_by_name.at(owner->view_of);
      written.insert(owner->decl.name);
    }
  }
}

}  // namespace

ArenaPlan plan_arena(const Plan& plan, const DimValues& sizes) {
  ArenaPlan arena;
  TensorsByName tensors_by_name;
  for (const PlanTensor& tensor : plan.tensors) tensors_by_name[tensor.decl.name] = &tensor;
  std::set<std::string> written;
  for (Phase phase : {Phase::forward, Phase::backward}) {
    const std::vector<PlanStep>& steps = phase == Phase::forward ? plan.forward : plan.backward;
    find_lifetimes(plan, steps, phase, tensors_by_name, sizes, arena, written);
    std::vector<ArenaSlot*> slots;
    for (auto& [name, slot] : arena.temporaries) {
      if (slot.phase != phase) continue;
      slots.push_back(&slot);
      arena.temporary_bytes += aligned(slot.bytes);
    }
    const int64_t alive = most_alive(slots, static_cast<int>(steps.size()));
    arena.live_bytes = std::max(arena.live_bytes, alive);
    arena.bytes = std::max(arena.bytes, place(std::move(slots), alive));
  }
  for (auto& [name, slot] : arena.saved) {
    slot.offset = arena.saved_bytes;
    arena.saved_bytes += aligned(slot.bytes);
  }
  return arena;
}

}  // namespace coda
