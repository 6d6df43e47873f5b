// SPDX-License-Identifier: Apache-2.0
// Runs a Plan: every step prepared once by a backend, the plan's own tensors in one arena, the
// caller's bound by name. Between forward() and backward() the session keeps what the forward
// saved.
//
//     Session session(compiled.plan, *backend, sizes);
//     session.allocate();
//     session.tensor("x").set(values);
//     session.forward();
//     std::vector<float> y = session.tensor("y").floats();
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coda/api.h"
#include "coda/backend.h"
#include "coda/plan.h"
#include "coda/tensor.h"

namespace CODA_API coda {

struct StepTiming {
  std::string name;
  double seconds = 0;
};

// Where results lie in memory that the caller lends: in bytes, multiples of 64. Until a step writes
// a result, the session keeps other tensors in its place. Names that are no outputs of the plan, or
// that a step reads before one writes them, stay the caller's, and so do the bytes between.
struct ResultPlaces {
  int64_t bytes = 0;  // of the memory
  std::map<std::string, int64_t, std::less<>> offsets{};
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
  // Results that are the session's own in the same sense, though they lie in the caller's memory. A
  // backward then runs once for each forward, as it stores over what was saved.
  ResultPlaces result_places{};
  Tensor result_memory{};
  // The caller lends the memory of the plan's own tensors and of its kernels' scratch, for single
  // runs: see Session::lend().
  bool own_memory_is_lent = false;
};

class Session {
 public:
  // The backend must outlive the session. Throws Error if the plan does not fit itself, naming the
  // step.
  Session(Plan plan, Backend& backend, DimValues sizes, SessionOptions options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // Inputs, parameters and outputs, unless the session owns them, in memory of the backend. What is
  // bound may be bound again at any time; an output that a step also reads (a gradient that is
  // added to) is read from the same memory. Throws Error for a name that is not the caller's to
  // bind, and for another type or size. A view's memory stays the caller's and must outlive its
  // last run.
  void bind(std::string_view name, const TensorView& view);
  void bind(std::string_view name, const Tensor& tensor);  // is kept with the session
  // A whole set at once. Throws Error that names all that the plan does not have, all that do not
  // fit, and all that would still be missing then; nothing is bound.
  void bind(const TensorMap& tensors);
  // Those of the set that the plan has and the session does not own: a model's parameters, of which
  // a plan may need a part.
  void bind_known(const TensorMap& tensors);
  // Makes and binds a tensor of zeros for each that is missing, and returns them.
  TensorMap allocate();
  // What has to be bound and is not yet.
  std::vector<std::string> missing() const;

  // Throw Error naming the tensors of the phase that are not bound, or two that share memory, one
  // of which is written. backward() follows a forward(), and may follow it again unless the plan
  // stores over what the forward saved.
  void forward();
  void backward();
  // before(i) is called before step i of Plan::forward or Plan::backward runs (of a loop's steps:
  // before all of the loop), and at last with their number, behind all of them.
  using BeforeStep = std::function<void(size_t step)>;
  void forward(const BeforeStep& before);
  void backward(const BeforeStep& before);

  // From now on this is called for each step (of a loop: for each of its chunks) with its name and
  // what runs it; empty: steps run by themselves.
  using Observer = std::function<void(const std::string& step, const std::function<void()>& run)>;
  void observe(Observer observer);

  const Plan& plan() const;
  const DimValues& sizes() const;
  // Any tensor that has been bound or that the session owns: a temporary is valid inside a phase
  // only, what is saved until a backward that stores over some of it. Throws Error if it has no
  // memory. The session must outlive a tensor that it owns.
  TensorView view(std::string_view name) const;
  Tensor tensor(std::string_view name) const;

  // Of the last run of each phase; empty unless timing was asked for.
  const std::vector<StepTiming>& forward_timings() const;
  const std::vector<StepTiming>& backward_timings() const;
  // Whether a tensor of the plan has memory of the session, so that nothing is bound.
  bool owns(std::string_view name) const;
  // Memory of its tensors, bytes: what is saved for the backward, and what they take besides; below
  // 0 where what is saved lies in the places of results.
  int64_t saved_bytes() const;
  int64_t arena_bytes() const;
  // What kernels use while they run; all of them the same.
  int64_t scratch_bytes() const;
  // Memory for own tensors and scratch from now on, lent_bytes() of the backend's, at a multiple of
  // 64 bytes. What is saved for a backward lies there too, so the caller lends the same memory
  // until that has run. Between runs of a plan of one phase it holds nothing.
  int64_t lent_bytes() const;
  void lend(std::byte* memory);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace CODA_API coda
