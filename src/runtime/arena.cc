// SPDX-License-Identifier: Apache-2.0
// Offline best fit: the largest tensor first (else the longest alive, else what is alive at the
// end), each into the tightest gap among those that are alive with it. Where that takes more than
// is alive at once, what lies at the end goes first, and all is placed again. Should it be no
// better than each phase's temporaries by themselves and the other tensors behind them, they lie
// so.
#include "runtime/arena.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/rounding.h"
#include "coda/backend.h"
#include "coda/error.h"
#include "coda/plan.h"
#include "plan/after/row_chunks.h"
#include "runtime/row_stride.h"

namespace coda {
namespace {

int64_t aligned(int64_t bytes) { return round_up(bytes, kCacheLine); }

int64_t bytes_of(const PlanTensor& tensor, const DimValues& sizes) {
  const PhysicalShape shape = physical_shape(tensor.decl, sizes);
  return shape.rows * row_stride(tensor, shape) * size_of(tensor.decl.dtype);
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

bool is_larger(const ArenaSlot* a, const ArenaSlot* b) {
  return a->bytes != b->bytes ? a->bytes > b->bytes : a->first_step < b->first_step;
}

bool lives_longer(const ArenaSlot* a, const ArenaSlot* b) {
  const int life_a = a->last_step - a->first_step, life_b = b->last_step - b->first_step;
  return life_a != life_b ? life_a > life_b : is_larger(a, b);
}

bool ends_later(const ArenaSlot* a, const ArenaSlot* b) {
  return a->last_step != b->last_step ? a->last_step > b->last_step : is_larger(a, b);
}

// Gives every slot its offset; returns the bytes they need together, `least` at best.
int64_t place(std::vector<ArenaSlot*> slots, int64_t least) {
  // Placing takes the square of their number: a large model's plan is placed fewer times.
  constexpr size_t kMostWork = 1 << 20;
  constexpr size_t kMostTries = 32;
  const size_t tries = std::min(kMostTries, kMostWork / (slots.size() * slots.size() + 1));
  std::vector<ArenaSlot*> best;
  int64_t total = 0;
  for (const auto& goes_first : {is_larger, lives_longer, ends_later}) {
    std::stable_sort(slots.begin(), slots.end(), goes_first);
    for (size_t left = 1 + tries; left > 0; --left) {
      const int64_t now = place_in_order(slots);
      if (best.empty() || now < total) {
        total = now;
        best = slots;
      }
      if (total <= least) return place_in_order(best);
      const auto last = std::find_if(slots.begin(), slots.end(), [&](const ArenaSlot* slot) {
        return aligned(slot->offset + slot->bytes) == now;
      });
      std::rotate(slots.begin(), last, last + 1);
    }
  }
  return place_in_order(best);
}

int64_t most_alive(const std::vector<ArenaSlot*>& slots, int steps) {
  std::vector<int64_t> change(static_cast<size_t>(steps) + 1);
  for (const ArenaSlot* slot : slots) {
    change[static_cast<size_t>(slot->first_step)] += aligned(slot->bytes);
    change[static_cast<size_t>(slot->last_step) + 1] -= aligned(slot->bytes);
  }
  int64_t most = 0, alive = 0;
  for (const int64_t bytes : change) {
    alive += bytes;
    most = std::max(most, alive);
  }
  return most;
}

// Steps of the loop that step i stands in, itself outside of any.
std::pair<int, int> loop_around(const std::vector<PlanStep>& steps, int i) {
  int first = i, last = i;
  const int loop = steps[i].loop;
  while (loop >= 0 && first > 0 && steps[first - 1].loop == loop) --first;
  while (loop >= 0 && last + 1 < static_cast<int>(steps.size()) && steps[last + 1].loop == loop)
    ++last;
  return {first, last};
}

class Owners {
 public:
  explicit Owners(const Plan& plan) {
    for (const PlanTensor& tensor : plan.tensors) tensors_[tensor.decl.name] = &tensor;
  }
  // What has the tensor's memory (a view lives in what it views); null: no tensor of the plan.
  const PlanTensor* operator()(std::string_view name) const {
    auto found = tensors_.find(name);
    while (found != tensors_.end() && !found->second->view_of.empty())
      found = tensors_.find(found->second->view_of);
    return found == tensors_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string_view, const PlanTensor*> tensors_;
};

// Finds the slots, without offsets, in the order in which steps name them. What a loop sees of a
// tensor that is not its own is alive from the loop's first step to its last: chunks follow one
// another.
class Lifetimes {
 public:
  Lifetimes(const Plan& plan, const DimValues& sizes, bool own_results, ArenaPlan& arena)
      : plan_(plan), sizes_(sizes), owners_(plan), own_results_(own_results), arena_(arena) {}

  void find() {
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const std::vector<PlanStep>& steps = phase == Phase::forward ? plan_.forward : plan_.backward;
      for (int i = 0; i < static_cast<int>(steps.size()); ++i) visit(steps, i, phase);
    }
    const int last = static_cast<int>(plan_.forward.size() + plan_.backward.size()) - 1;
    const bool spends = spends_saved(plan_);
    for (auto& [name, slot] : arena_.saved) {
      if (!spends) slot.last_step = last;
      // All of them are there as the forward ends, also what the backward never reads.
      slot.last_step = std::max(slot.last_step, static_cast<int>(plan_.forward.size()) - 1);
    }
    for (auto& [name, slot] : arena_.results) slot.last_step = last;
  }

 private:
  void visit(const std::vector<PlanStep>& steps, int i, Phase phase) {
    const int before = phase == Phase::forward ? 0 : static_cast<int>(plan_.forward.size());
    const auto [loop_first, loop_last] = loop_around(steps, i);
    const std::vector<StepTensor> tensors = step_tensors(steps[i]);
    for (const StepTensor& use : tensors) {
      const PlanTensor* tensor = owners_(use.name);
      require(tensor != nullptr, "step '" + steps[i].name + "' names '" + use.name +
                                     "', which is no tensor of the plan");
      const std::string& name = tensor->decl.name;
      std::map<std::string, ArenaSlot>* slots = slots_for(*tensor, use.read);
      if (slots == nullptr) continue;
      require(!use.read || written_.contains(name),
              "step '" + steps[i].name + "' reads '" + use.name + "' before any step writes it");
      require(tensor->loop < 0 || tensor->loop == steps[i].loop,
              "step '" + steps[i].name + "' names '" + use.name + "', which only a loop sees");
      const bool is_local = tensor->loop >= 0;
      const auto [slot, is_new] = slots->try_emplace(
          name,
          ArenaSlot{0, bytes_of_part(*tensor), phase, before + (is_local ? i : loop_first), 0});
      require(tensor->role != TensorRole::temporary || slot->second.phase == phase,
              "step '" + steps[i].name + "' of the backward uses '" + use.name +
                  "', a temporary of the forward; it must be saved");
      slot->second.last_step = before + (is_local ? i : loop_last);
    }
    for (const StepTensor& use : tensors)
      if (use.written) written_.insert(owners_(use.name)->decl.name);
  }

  // Where a tensor's slot belongs; null: the caller binds it.
  std::map<std::string, ArenaSlot>* slots_for(const PlanTensor& tensor, bool is_read) {
    switch (tensor.role) {
      case TensorRole::temporary: return &arena_.temporaries;
      case TensorRole::saved: return &arena_.saved;
      case TensorRole::output:
        if (is_read && !written_.contains(tensor.decl.name)) given_.insert(tensor.decl.name);
        return own_results_ && !given_.contains(tensor.decl.name) ? &arena_.results : nullptr;
      default: return nullptr;
    }
  }

  // Of the whole tensor, or of a chunk where only a loop sees it.
  int64_t bytes_of_part(const PlanTensor& tensor) const {
    if (tensor.loop < 0) return bytes_of(tensor, sizes_);
    return bytes_of(tensor, sizes_of_chunk(plan_.loops[tensor.loop], sizes_, 0));
  }

  const Plan& plan_;
  const DimValues& sizes_;
  const Owners owners_;
  bool own_results_;
  ArenaPlan& arena_;
  std::set<std::string> written_;
  std::set<std::string> given_;  // outputs that are read before any step has written them
};

// Each phase's temporaries by themselves, the other tensors side by side behind them.
int64_t place_apart(ArenaPlan& arena, int steps) {
  int64_t end = 0;
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    std::vector<ArenaSlot*> slots;
    for (auto& [name, slot] : arena.temporaries)
      if (slot.phase == phase) slots.push_back(&slot);
    const int64_t least = most_alive(slots, steps);
    end = std::max(end, place(std::move(slots), least));
  }
  for (auto* others : {&arena.saved, &arena.results}) {
    for (auto& [name, slot] : *others) {
      slot.offset = end;
      end += aligned(slot.bytes);
    }
  }
  return end;
}

}  // namespace

bool spends_saved(const Plan& plan) {
  const Owners owners(plan);
  std::set<std::string_view> of_forward;
  for (const PlanStep& step : plan.forward) {
    for (const StepTensor& use : step_tensors(step)) {
      if (!use.written) continue;
      const PlanTensor* owner = owners(use.name);
      if (owner != nullptr && owner->role != TensorRole::temporary)
        of_forward.insert(owner->decl.name);
    }
  }
  for (const PlanStep& step : plan.backward) {
    for (const StepTensor& use : step_tensors(step)) {
      if (!use.written) continue;
      const PlanTensor* owner = owners(use.name);
      if (owner != nullptr && of_forward.contains(owner->decl.name)) return true;
    }
  }
  return false;
}

ArenaPlan plan_arena(const Plan& plan, const DimValues& sizes, bool own_results) {
  ArenaPlan arena;
  Lifetimes(plan, sizes, own_results, arena).find();
  const int steps = static_cast<int>(plan.forward.size() + plan.backward.size());
  std::vector<ArenaSlot*> slots;
  for (auto* kind : {&arena.temporaries, &arena.saved, &arena.results}) {
    for (auto& [name, slot] : *kind) {
      slots.push_back(&slot);
      (kind == &arena.saved ? arena.saved_bytes : arena.temporary_bytes) += aligned(slot.bytes);
    }
  }
  const int64_t alive = most_alive(slots, steps);
  int64_t total = place_apart(arena, steps);
  if (total > alive) {
    const ArenaPlan apart = arena;
    const int64_t together = place(std::move(slots), alive);
    if (together < total) {
      total = together;
    } else {
      arena = apart;
    }
  }
  arena.bytes = total - arena.saved_bytes;
  arena.live_bytes = alive - arena.saved_bytes;
  return arena;
}

}  // namespace coda
