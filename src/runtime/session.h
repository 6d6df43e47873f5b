// SPDX-License-Identifier: Apache-2.0
// Runs a Plan: every step prepared once by a backend, the plan's own tensors in one arena, the
// caller's bound by name. Between forward() and backward() the session keeps what the forward
// saved. The steps of a row loop run block after block; what reaches a kernel is a block's rows, so
// backends know no loops.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coda/plan.h"
#include "runtime/arena.h"
#include "runtime/backend.h"
#include "runtime/overlap.h"

namespace coda {

struct StepTiming {
  std::string name;
  double seconds = 0;
};

struct SessionOptions {
  bool timing = false;  // measure each step
  // Before each phase fill what it will write with NaN (-1 in integers): of the session's own
  // memory all that keeps nothing for the phase, and outputs that it does not read; results of the
  // session's before the step that writes them first. A store that a backend forgets then shows in
  // the results.
  bool poison = false;
  // Outputs that no step reads before one has written them (gradients that are not added to) are
  // the session's own: view() has them, after the phase that writes them and until the next
  // forward(). They take memory from the step that writes them on, so a gradient lies where an
  // activation was that is done with.
  bool own_results = false;
};

class Session {
 public:
  // The backend must outlive a session that measures or poisons. Throws Error if the plan does not
  // fit itself, naming the step.
  Session(Plan plan, Backend& backend, DimValues sizes, SessionOptions options = {});

  // Inputs, parameters and outputs, unless the session owns them. Memory stays the caller's and
  // must outlive its last run; it may be bound again at any time. An output that a step also reads
  // (a gradient that is added to) is read from the same memory.
  void bind(std::string_view name, const TensorView& view);

  // Throw Error if a tensor of the phase is not bound, or its memory overlaps that of another which
  // is written. backward() follows a forward(), and may follow it again unless the plan stores over
  // what the forward saved.
  void forward();
  void backward();

  const Plan& plan() const { return plan_; }
  const DimValues& sizes() const { return sizes_; }
  // Memory of any tensor that has been bound or that the session owns: a temporary is valid inside
  // a phase only, what is saved until a backward that stores over some of it.
  TensorView view(std::string_view name) const;

  // Of the last run of each phase; empty unless timing was asked for.
  const std::vector<StepTiming>& forward_timings() const { return forward_.timings; }
  const std::vector<StepTiming>& backward_timings() const { return backward_.timings; }
  // Whether a tensor of the plan has memory of the session, so that nothing is bound.
  bool owns(std::string_view name) const;
  const ArenaPlan& arena() const { return arena_; }
  // Together all memory of its tensors: what is saved, and what they take besides.
  int64_t arena_bytes() const { return arena_.bytes; }
  int64_t saved_bytes() const { return arena_.saved_bytes; }
  // What kernels use while they run; all of them the same.
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  struct PreparedStep {
    std::string name;
    std::unique_ptr<Kernel> kernel;
    std::vector<int> tensors;       // slots of memory_
    std::vector<TensorView> views;  // the same, as the kernel takes them (of a loop: of block 0)
    int loop = -1;
    // In a loop: for blocks behind the first, for a last block that is shorter, and for one that is
    // both; null where no such block is or it needs no other kernel.
    std::unique_ptr<Kernel> later, shorter, later_shorter;
  };
  struct PreparedPhase {
    std::vector<PreparedStep> steps;
    std::map<int, bool> given;     // slots of what the caller binds, and whether it is written
    std::vector<int> overwritten;  // slots of outputs that are written and not read before
    std::vector<StepTiming> timings;
    bool is_stale = true;  // a binding has changed since `views` was filled
  };
  struct Memory {
    const PlanTensor* tensor = nullptr;
    PhysicalShape shape;
    TensorView view;  // data is null until bound
  };

  void prepare(const std::vector<PlanStep>& steps, Backend& backend, PreparedPhase& phase);
  void prepare_blocks(const PlanStep& step, Backend& backend, PreparedStep& prepared) const;
  void share_scratch();
  void run_step(PreparedStep& step, int64_t block);
  void poison_own(bool forward);
  void poison_results(int first, int end);
  void poison_block(int loop);
  // The block's part of a tensor that block 0 sees as `view`.
  TensorView part(const TensorView& view, int slot, const RowLoop& loop, int64_t block) const;
  void place_own();
  void announce(Backend& backend) const;
  void run(PreparedPhase& phase, const char* name);
  std::vector<GivenTensor> given_tensors(const PreparedPhase& phase) const;
  int slot_of(std::string_view name) const;
  // Views of other tensors: of the plan (see PlanTensor::view_of).
  void check_view(const Memory& view) const;
  int64_t column_offset(const Memory& view) const;
  int owner_of(int slot) const;        // what has the memory
  TensorView resolve(int slot) const;  // null data where nothing is bound
  DimValues sizes_in(int loop) const;  // of a loop's first block; -1: sizes()

  Plan plan_;
  Backend& backend_;
  DimValues sizes_;
  SessionOptions options_;
  ArenaPlan arena_;
  BackendMemory own_;  // the arena's
  BackendMemory scratch_;
  int64_t scratch_bytes_ = 0;
  std::vector<Memory> memory_;                     // as plan_.tensors
  std::map<std::string, int, std::less<>> slots_;  // name -> index of memory_
  PreparedPhase forward_;
  PreparedPhase backward_;
  bool has_forward_ = false;
  bool spends_saved_ = false;  // the backward can run once for each forward
};

}  // namespace coda
