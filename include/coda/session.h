// SPDX-License-Identifier: Apache-2.0
// Runs a Plan. A backend prepares every plan step once; the plan's own tensors share one arena, and
// the caller's tensors are bound by name. Between forward() and backward() the session keeps the
// saved tensors.
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

// Places of results in memory that the caller lends, in bytes, multiples of 64. Until a plan step
// writes a result, the session may use its place for other tensors. The caller keeps names that are
// no outputs of the plan or that a step reads before one writes them, and all bytes between the
// places.
struct ResultPlaces {
  int64_t bytes = 0;  // size of the memory
  std::map<std::string, int64_t, std::less<>> offsets{};
};

struct SessionOptions {
  bool timing = false;  // measure each plan step
  // For tests: before each phase, fill all memory that the phase must write with NaN (-1 in
  // integers). That is the session's own memory except tensors that the phase still needs, and
  // outputs that the phase does not read first; the session's own results are filled just before
  // the plan step that writes them. A store that a backend forgets then shows in the results.
  bool poison = false;
  // The session owns the outputs that no plan step reads before one writes them (gradients that do
  // not accumulate). view() returns them after the phase that writes them, until the next
  // forward(). They take memory only from their first write on, so a gradient may reuse the memory
  // of an activation that is no longer needed.
  bool own_results = false;
  // As own_results, but the results are in the caller's memory. Then each forward allows only one
  // backward, because the backward overwrites saved tensors.
  ResultPlaces result_places{};
  Tensor result_memory{};
  // The caller lends the memory of the plan's own tensors and of the kernels' scratch for each run;
  // see Session::lend().
  bool own_memory_is_lent = false;
};

class Session {
 public:
  // The backend must outlive the session. Throws Error, naming the plan step, if the plan is
  // inconsistent, and if the plan keeps tensors in the host's memory where the backend keeps all.
  Session(Plan plan, Backend& backend, DimValues sizes, SessionOptions options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // Binds inputs, parameters, and outputs that the session does not own, in the backend's memory.
  // They may be bound again at any time. An output that a plan step also reads (an accumulated
  // gradient) is read from the same memory. Throws Error for a name that cannot be bound and for a
  // wrong type or size. The memory of a view must outlive its last run.
  void bind(std::string_view name, const TensorView& view);
  void bind(std::string_view name, const Tensor& tensor);  // the session keeps the tensor alive
  // For callers that bind before each run: bind(slot(name), view) is bind(name, view) without the
  // search for the name.
  int slot(std::string_view name) const;
  void bind(int slot, const TensorView& view);
  // Binds a set of tensors. Throws Error naming all that the plan does not have, all that do not
  // fit, and all that would still be missing; then nothing is bound.
  void bind(const TensorMap& tensors);
  // Binds those tensors of the set that the plan has and the session does not own, for example a
  // model's parameters, of which a plan may need only some.
  void bind_known(const TensorMap& tensors);
  // Creates and binds a zero-filled tensor for each name of missing(). Returns the new tensors.
  TensorMap allocate();
  // Names that must be bound and are not bound yet.
  std::vector<std::string> missing() const;

  // Throw Error naming tensors of the phase that are not bound, or two tensors that share memory of
  // which one is written. backward() requires a forward(); it may run several times after one
  // forward unless the plan overwrites saved tensors.
  void forward();
  void backward();
  // before(i) is called before step i of Plan::forward or Plan::backward (for a loop: once, before
  // all its steps), and with the number of steps after the last one.
  using BeforeStep = std::function<void(size_t step)>;
  void forward(const BeforeStep& before);
  void backward(const BeforeStep& before);

  // From now on calls `observer` for each plan step (in a loop: for each block) with its name and
  // the function that runs it. Also calls it for each copy of Plan::host_copies, with a name such
  // as "copy x to the host"; while there is an observer, copies do not overlap with steps. Empty:
  // plan steps run directly.
  using Observer = std::function<void(const std::string& step, const std::function<void()>& run)>;
  void observe(Observer observer);

  const Plan& plan() const;
  const DimValues& sizes() const;
  // Any tensor that is bound or that the session owns. A temporary is valid only inside a phase; a
  // saved tensor until a backward overwrites it. Throws Error if the tensor has no memory. The
  // session must outlive a tensor that it owns.
  TensorView view(std::string_view name) const;
  Tensor tensor(std::string_view name) const;

  // Times of the last run of each phase; empty unless SessionOptions::timing.
  const std::vector<StepTiming>& forward_timings() const;
  const std::vector<StepTiming>& backward_timings() const;
  // Whether the session owns the memory of this tensor, so that it must not be bound.
  bool owns(std::string_view name) const;
  // The session's memory in bytes: saved_bytes() for tensors saved for the backward, arena_bytes()
  // for all others. The latter is negative if saved tensors use the places of results.
  int64_t saved_bytes() const;
  int64_t arena_bytes() const;
  // Scratch memory that all kernels share.
  int64_t scratch_bytes() const;
  // Sets the memory for own tensors and scratch: lent_bytes() bytes of the backend's memory,
  // aligned to 64 bytes. It also holds the tensors saved for a backward, so the caller must lend
  // the same memory until that backward has run. For a plan with one phase it holds nothing between
  // two runs.
  int64_t lent_bytes() const;
  void lend(std::byte* memory);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace CODA_API coda
