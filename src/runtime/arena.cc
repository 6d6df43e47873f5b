// SPDX-License-Identifier: Apache-2.0
// Offline best fit: places the largest tensor first (other orders that are tried: longest lifetime
// first, or alive at the end first), each into the tightest gap among the tensors that are alive at
// the same time. If the result exceeds the maximum of live memory, the tensors at the end are moved
// to the front of the order, and everything is placed again. If that is no better than placing each
// phase's temporaries separately with the other tensors after them, that layout is used. Results
// with given places are fixed first, and so are walls, which nothing may cross: parts of lent
// memory without a result, and the border between lent and own memory.
#include "runtime/arena.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/rounding.h"
#include "coda/backend.h"
#include "coda/error.h"
#include "coda/plan.h"
#include "plan/after/row_blocks.h"
#include "runtime/row_stride.h"

namespace coda {
namespace {

int64_t aligned(int64_t bytes) { return round_up(bytes, kCacheLine); }

int64_t bytes_of(const PlanTensor& tensor, const DimValues& sizes) {
  const PhysicalShape shape = physical_shape(tensor.decl, sizes);
  return shape.rows * row_stride(tensor, shape) * size_of(tensor.decl.dtype);
}

bool are_alive_at_once(const ArenaSlot& a, const ArenaSlot& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

// The lowest offset of the smallest gap between `placed` (those alive together with `slot`) that
// holds it, else their end.
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

using Fixed = std::vector<const ArenaSlot*>;  // slots that have their offsets

// Gives each slot its offset, in this order; returns the total number of bytes.
int64_t place_in_order(const std::vector<ArenaSlot*>& slots, const Fixed& fixed) {
  std::vector<const ArenaSlot*> done = fixed;
  int64_t total = 0;
  for (const ArenaSlot* slot : fixed) total = std::max(total, aligned(slot->offset + slot->bytes));
  for (ArenaSlot* slot : slots) {
    std::vector<const ArenaSlot*> neighbours;
    for (const ArenaSlot* other : done)
      if (are_alive_at_once(*slot, *other)) neighbours.push_back(other);
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

// Gives each slot its offset; returns the total number of bytes, at best `least`.
int64_t place(std::vector<ArenaSlot*> slots, int64_t least, const Fixed& fixed) {
  // The time grows with the square of the number of slots, so large plans get fewer tries.
  constexpr size_t kMostWork = 1 << 20;
  constexpr size_t kMostTries = 32;
  const size_t tries = std::min(kMostTries, kMostWork / (slots.size() * slots.size() + 1));
  std::vector<ArenaSlot*> best;
  int64_t total = 0;
  for (const auto& goes_first : {is_larger, lives_longer, ends_later}) {
    std::stable_sort(slots.begin(), slots.end(), goes_first);
    for (size_t left = 1 + tries; left > 0; --left) {
      const int64_t now = place_in_order(slots, fixed);
      if (best.empty() || now < total) {
        total = now;
        best = slots;
      }
      if (total <= least) return place_in_order(best, fixed);
      const auto last = std::find_if(slots.begin(), slots.end(), [&](const ArenaSlot* slot) {
        return aligned(slot->offset + slot->bytes) == now;
      });
      if (last == slots.end()) return place_in_order(best, fixed);  // a wall is there
      std::rotate(slots.begin(), last, last + 1);
    }
  }
  return place_in_order(best, fixed);
}

int64_t most_alive(const std::vector<ArenaSlot*>& slots, const Fixed& fixed, int steps) {
  std::vector<int64_t> change(static_cast<size_t>(steps) + 1);
  const auto count = [&](const ArenaSlot* slot) {
    change[static_cast<size_t>(slot->first_step)] += aligned(slot->bytes);
    change[static_cast<size_t>(slot->last_step) + 1] -= aligned(slot->bytes);
  };
  std::ranges::for_each(slots, count);
  std::ranges::for_each(fixed, count);
  int64_t most = 0, alive = 0;
  for (const int64_t bytes : change) {
    alive += bytes;
    most = std::max(most, alive);
  }
  return most;
}

// The steps of the loop that contains step i; only i itself outside of loops.
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
  // The owner of the tensor's memory; null: not a tensor of the plan.
  const PlanTensor* operator()(std::string_view name) const {
    auto found = tensors_.find(name);
    while (found != tensors_.end() && !found->second->view_of.empty())
      found = tensors_.find(found->second->view_of);
    return found == tensors_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string_view, const PlanTensor*> tensors_;
};

// Finds the slots, without offsets, in the order in which steps name them. A tensor that a loop
// uses but does not own is alive from the loop's first step to its last, because blocks run one
// after another.
class Lifetimes {
 public:
  Lifetimes(const Plan& plan, const DimValues& sizes, bool own_results, const ResultPlaces& places,
            ArenaPlan& arena)
      : plan_(plan),
        sizes_(sizes),
        owners_(plan),
        own_results_(own_results),
        places_(places),
        arena_(arena) {}

  void find() {
    for (const HostCopy& copy : plan_.host_copies) written_.insert(copy.fetched);
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const std::vector<PlanStep>& steps = phase == Phase::forward ? plan_.forward : plan_.backward;
      for (int i = 0; i < static_cast<int>(steps.size()); ++i) visit(steps, i, phase);
    }
    for (const HostCopy& copy : plan_.host_copies) {
      int& end = arena_.temporaries.at(copy.stored).last_step;
      end = std::max(end, static_cast<int>(copy.out_end) - 1);
      int& start = arena_.temporaries.at(copy.fetched).first_step;
      start = std::min(start, static_cast<int>(plan_.forward.size() + copy.in));
    }
    const int last = static_cast<int>(plan_.forward.size() + plan_.backward.size()) - 1;
    const bool spends = spends_saved(plan_) || !places_.offsets.empty();
    for (auto& [name, slot] : arena_.saved) {
      if (!spends) slot.last_step = last;
      // All saved tensors exist at the end of the forward, even those that the backward never
      // reads.
      slot.last_step = std::max(slot.last_step, static_cast<int>(plan_.forward.size()) - 1);
    }
    for (auto& [name, slot] : arena_.results) {
      slot.last_step = last;
      if (const auto place = places_.offsets.find(name); place != places_.offsets.end())
        slot.offset = place->second;
    }
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

  // The map for a tensor's slot; null: the caller binds it.
  std::map<std::string, ArenaSlot>* slots_for(const PlanTensor& tensor, bool is_read) {
    switch (tensor.role) {
      case TensorRole::temporary: return &arena_.temporaries;
      case TensorRole::saved: return &arena_.saved;
      case TensorRole::output:
        if (is_read && !written_.contains(tensor.decl.name)) given_.insert(tensor.decl.name);
        if (!own_results_ && !places_.offsets.contains(tensor.decl.name)) return nullptr;
        return given_.contains(tensor.decl.name) ? nullptr : &arena_.results;
      default: return nullptr;
    }
  }

  // The bytes of the whole tensor, or of a block if only a loop uses it.
  int64_t bytes_of_part(const PlanTensor& tensor) const {
    if (tensor.loop < 0) return bytes_of(tensor, sizes_);
    return bytes_of(tensor, sizes_of_row_block(plan_.loops[tensor.loop], sizes_, 0));
  }

  const Plan& plan_;
  const DimValues& sizes_;
  const Owners owners_;
  bool own_results_;
  const ResultPlaces& places_;
  ArenaPlan& arena_;
  std::set<std::string> written_;
  std::set<std::string> given_;  // outputs that are read before a step writes them
};

// The areas that no tensor may cross: in lent memory, everything between the results that have
// places, and its end. Throws Error if results do not fit.
std::vector<ArenaSlot> walls_around(Fixed results, int64_t lent_bytes, int steps) {
  std::ranges::sort(results, {}, &ArenaSlot::offset);
  std::vector<ArenaSlot> walls;
  int64_t end = 0;
  const auto wall = [&](int64_t to) {
    if (to > end) walls.push_back({.offset = end, .bytes = to - end, .last_step = steps - 1});
  };
  for (const ArenaSlot* result : results) {
    require(result->offset % kCacheLine == 0 && result->offset >= end,
            "the place of a result, byte " + std::to_string(result->offset) +
                " of lent memory, is no multiple of 64 or another's");
    wall(result->offset);
    end = aligned(result->offset + result->bytes);
  }
  require(end <= lent_bytes, "results take " + std::to_string(end) + " bytes of lent memory of " +
                                 std::to_string(lent_bytes));
  wall(lent_bytes);
  walls.push_back({.offset = lent_bytes, .last_step = steps - 1});
  return walls;
}

// Places each phase's temporaries separately and the other tensors one after another behind them,
// from `start` on, except for fixed slots.
int64_t place_apart(ArenaPlan& arena, int steps, const Fixed& fixed, int64_t start) {
  int64_t end = 0;
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    std::vector<ArenaSlot*> slots;
    for (auto& [name, slot] : arena.temporaries)
      if (slot.phase == phase) slots.push_back(&slot);
    const int64_t least = most_alive(slots, {}, steps);
    end = std::max(end, place(std::move(slots), least, {}));
  }
  for (auto& [name, slot] : arena.temporaries) slot.offset += start;
  end += start;
  for (auto* others : {&arena.saved, &arena.results}) {
    for (auto& [name, slot] : *others) {
      if (std::ranges::find(fixed, &slot) != fixed.end()) continue;
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

ArenaPlan plan_arena(const Plan& plan, const DimValues& sizes, bool own_results,
                     const ResultPlaces& places) {
  ArenaPlan arena;
  arena.lent_bytes = places.bytes;
  Lifetimes(plan, sizes, own_results, places, arena).find();
  const int steps = static_cast<int>(plan.forward.size() + plan.backward.size());
  std::vector<ArenaSlot*> slots;
  Fixed fixed;
  for (auto* kind : {&arena.temporaries, &arena.saved, &arena.results}) {
    for (auto& [name, slot] : *kind) {
      if (kind == &arena.results && places.offsets.contains(name)) {
        fixed.push_back(&slot);
        continue;
      }
      slots.push_back(&slot);
      (kind == &arena.saved ? arena.saved_bytes : arena.temporary_bytes) += aligned(slot.bytes);
    }
  }
  const std::vector<ArenaSlot> walls = walls_around(fixed, places.bytes, steps);
  for (const ArenaSlot& wall : walls) {
    arena.untouched.emplace(wall.offset, wall.bytes);
    fixed.push_back(&wall);
  }
  const int64_t alive = std::max(places.bytes, most_alive(slots, fixed, steps));
  int64_t total = place_apart(arena, steps, fixed, places.bytes);
  if (total > alive) {
    std::vector<int64_t> apart;
    for (const ArenaSlot* slot : slots) apart.push_back(slot->offset);
    const int64_t together = place(slots, alive, fixed);
    if (together < total) {
      total = together;
    } else {
      for (size_t i = 0; i < slots.size(); ++i) slots[i]->offset = apart[i];
    }
  }
  arena.bytes = total - places.bytes - arena.saved_bytes;
  arena.live_bytes = alive - places.bytes - arena.saved_bytes;
  return arena;
}

}  // namespace coda
