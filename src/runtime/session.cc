// SPDX-License-Identifier: Apache-2.0
// All checks happen when a session is made and when memory is bound; a run only calls kernels.
#include "coda/session.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "base/aligned_buffer.h"
#include "base/rounding.h"
#include "coda/error.h"
#include "coda/plan.h"
#include "plan/after/row_blocks.h"
#include "runtime/arena.h"
#include "runtime/overlap.h"
#include "runtime/plan_programs.h"
#include "runtime/row_stride.h"
#include "runtime/why_unfit.h"

namespace coda {
namespace {

bool is_callers(TensorRole role) {
  return role == TensorRole::input || role == TensorRole::parameter || role == TensorRole::output;
}

constexpr std::byte kPoison{0xff};

// Bytes as a tensor.
TensorView bytes_view(std::byte* memory, int64_t bytes) {
  return dense_view(memory, DType::i32, 1, bytes / size_of(DType::i32));
}

void require_bound(const std::set<std::string>& unbound, const char* phase,
                   const std::string& step) {
  if (unbound.empty()) return;
  std::string names;
  for (const std::string& name : unbound) names += (names.empty() ? "" : ", ") + name;
  const std::string subject = unbound.size() == 1 ? "tensor " + names + " is" : names + " are";
  throw Error(std::string(phase) + ": " + subject + " not bound; step '" + step + "' needs " +
              (unbound.size() == 1 ? "it" : "one of them"));
}

}  // namespace

class Session::Impl {
 public:
  Impl(Plan plan, Backend& backend, DimValues sizes, SessionOptions options);

  int slot(std::string_view name) const;
  void bind(int slot, const TensorView& view);
  void bind(std::string_view name, const TensorView& view);
  void bind(std::string_view name, const Tensor& tensor);
  void bind(const TensorMap& tensors);
  std::vector<std::string> missing() const;
  TensorMap allocate();
  void forward(const BeforeStep& before);
  void backward(const BeforeStep& before);
  TensorView view(std::string_view name) const;
  Tensor tensor(std::string_view name) const;
  bool owns(std::string_view name) const;
  bool takes(std::string_view name) const;
  std::string why_not_bound(std::string_view name) const;
  std::string why_not_bound(int slot, const TensorView& view) const;
  std::string why_not_bound(std::string_view name, const TensorView& view) const;
  std::string why_elsewhere(std::string_view name, const Tensor& tensor) const;

  struct PreparedStep {
    std::string name;
    std::unique_ptr<Kernel> kernel;
    std::vector<int> tensors;       // slots of memory_
    std::vector<TensorView> views;  // in the kernel's order (in a loop: of block 0)
    int loop = -1;
    // In a loop: kernels for later blocks, for a shorter last block, and for a later shorter one;
    // null if there is no such block or it needs no separate kernel.
    std::unique_ptr<Kernel> later, shorter, later_shorter;
  };
  struct PreparedPhase {
    std::vector<PreparedStep> steps;
    std::map<int, bool> given;     // slots that the caller binds; whether they are written
    std::vector<int> overwritten;  // slots of outputs that are written before they are read
    std::vector<StepTiming> timings;
    bool is_stale = true;  // a binding has changed since `views` was filled
  };
  struct Memory {
    const PlanTensor* tensor = nullptr;
    PhysicalShape shape;
    TensorView view;  // data is null until bound
    Tensor kept{};    // keeps a bound Tensor's memory alive
  };
  struct HostMemory {  // of one of Plan::host_copies
    const HostCopy* copy = nullptr;
    int stored = -1;  // slots of memory_
    int fetched = -1;
    TensorView host;
    BackendMemory memory;
    std::function<void()> wait = nullptr;  // for the copy that was started
  };

  void prepare(const std::vector<PlanStep>& steps, Backend& backend, PreparedPhase& phase);
  void prepare_blocks(const PlanStep& step, Backend& backend, PreparedStep& prepared) const;
  void prepare_host_copies();
  void share_scratch();
  // Ends and starts the copies of Plan::host_copies that must end or start before this step.
  void copy_before(size_t step, bool forward);
  void run_step(PreparedStep& step, int64_t block);
  void poison_own(bool forward);
  void poison_results(int first, int end);
  void poison_block(int loop);
  // The block's part of a tensor that block 0 sees as `view`.
  TensorView part(const TensorView& view, int slot, const RowBlocks& loop, int64_t block) const;
  void place_own();
  void lend(std::byte* memory);
  int64_t lent_bytes() const { return round_up(arena_.total_bytes(), kCacheLine) + scratch_bytes_; }
  std::byte* at(int64_t offset) const;  // of the arena
  void run(PreparedPhase& phase, const char* name, const BeforeStep& before);
  std::vector<GivenTensor> given_tensors(const PreparedPhase& phase) const;
  int slot_of(std::string_view name) const;
  // For views of other tensors of the plan (PlanTensor::view_of).
  void check_view(const Memory& view) const;
  int64_t column_offset(const Memory& view) const;
  int owner_of(int slot) const;        // the slot that owns the memory
  TensorView resolve(int slot) const;  // null data if nothing is bound
  DimValues sizes_in(int loop) const;  // of the loop's first block; -1: sizes()

 private:
  friend class Session;

  Plan plan_;
  Backend& backend_;
  DimValues sizes_;
  SessionOptions options_;
  ArenaPlan arena_;
  BackendMemory own_;  // the arena's memory
  BackendMemory scratch_;
  int64_t scratch_bytes_ = 0;
  std::vector<Memory> memory_;                     // as plan_.tensors
  std::map<std::string, int, std::less<>> slots_;  // name -> index of memory_
  std::vector<std::pair<int, int64_t>> places_;    // slots of own tensors, and their offsets
  std::vector<HostMemory> host_memory_;
  std::vector<Kernel*> scratch_users_;
  PreparedPhase forward_;
  PreparedPhase backward_;
  bool has_forward_ = false;
  bool spends_saved_ = false;  // each forward allows one backward
  Session::Observer observer_;
};

Session::Impl::Impl(Plan plan, Backend& backend, DimValues sizes, SessionOptions options)
    : plan_(std::move(plan)),
      backend_(backend),
      sizes_(std::move(sizes)),
      options_(std::move(options)) {
  for (const PlanTensor& tensor : plan_.tensors) {
    const bool is_new = slots_.emplace(tensor.decl.name, static_cast<int>(memory_.size())).second;
    require(is_new, "the plan has two tensors named '" + tensor.decl.name + "'");
    // A view is declared after its owner.
    require(tensor.view_of.empty() || slots_.contains(tensor.view_of),
            "tensor '" + tensor.decl.name + "' views '" + tensor.view_of +
                "', which is no tensor of the plan before it");
    memory_.push_back({.tensor = &tensor, .shape = {}, .view = {}});
    Memory& memory = memory_.back();
    const PlanTensor& owner = *memory_[owner_of(static_cast<int>(memory_.size()) - 1)].tensor;
    try {
      memory.shape = physical_shape(tensor.decl, sizes_in(owner.loop));
    } catch (const Error& error) {
      throw Error("tensor '" + tensor.decl.name + "': " + error.what());
    }
    memory.view = dense_view(nullptr, tensor.decl.dtype, memory.shape.rows, memory.shape.cols);
    if (tensor.view_of.empty()) memory.view.row_stride = row_stride(tensor, memory.shape);
    if (!tensor.view_of.empty()) check_view(memory);
  }
  arena_ = plan_arena(plan_, sizes_, options_.own_results, options_.result_places);
  const Tensor& lent = options_.result_memory;
  require(lent.size() * size_of(lent.dtype()) == arena_.lent_bytes,
          "the memory that is lent for results has another size than their places say");
  spends_saved_ = coda::spends_saved(plan_) || !options_.result_places.offsets.empty();
  for (const auto* slots : {&arena_.temporaries, &arena_.saved, &arena_.results})
    for (const auto& [name, slot] : *slots) places_.emplace_back(slot_of(name), slot.offset);
  if (!options_.own_memory_is_lent) {
    own_ = backend.allocate(static_cast<size_t>(arena_.total_bytes()), "a plan's own tensors");
    place_own();
  }
  backend.announce(programs_of(plan_, sizes_), calls_of(plan_, sizes_));
  prepare(plan_.forward, backend, forward_);
  prepare(plan_.backward, backend, backward_);
  share_scratch();
  prepare_host_copies();
}

void Session::Impl::prepare_host_copies() {
  require(plan_.host_copies.empty() || !backend_.is_on_host(),
          "the plan keeps inputs of layers in the host's memory, where the backend '" +
              std::string(backend_.name()) +
              "' has all tensors: compile without PlanChoices::layers_on_host");
  for (const HostCopy& copy : plan_.host_copies) {
    const int stored = slot_of(copy.stored);
    TensorView host = memory_[stored].view;
    const BackendMemory memory = backend_.allocate_on_host(
        static_cast<size_t>(host.size() * size_of(host.dtype)), "a layer's input");
    host.data = memory.get();
    host_memory_.push_back({&copy, stored, slot_of(copy.fetched), host, memory});
  }
}

void Session::Impl::copy_before(size_t step, bool forward) {
  for (HostMemory& its : host_memory_)
    if (step == (forward ? its.copy->out_end : its.copy->in_end)) its.wait();
  for (HostMemory& its : host_memory_) {
    if (step != (forward ? its.copy->out : its.copy->in)) continue;
    const auto copy = [&] {
      if (forward) {
        backend_.start_copy_out(memory_[its.stored].view, its.host);
      } else {
        backend_.start_copy_in(its.host, memory_[its.fetched].view);
      }
    };
    if (observer_) {
      observer_("copy " + its.copy->stored + (forward ? " to the host" : " from the host"), copy);
      its.wait = [] {};
    } else {
      its.wait = backend_.overlap(copy);
    }
  }
}

// Plan steps run one after another, so kernels can share scratch.
void Session::Impl::share_scratch() {
  std::vector<Kernel*>& kernels = scratch_users_;
  for (PreparedPhase* phase : {&forward_, &backward_}) {
    for (PreparedStep& step : phase->steps) {
      for (const auto* kernel : {&step.kernel, &step.later, &step.shorter, &step.later_shorter}) {
        if (*kernel != nullptr) kernels.push_back(kernel->get());
      }
    }
  }
  std::erase_if(kernels, [](const Kernel* kernel) { return kernel->scratch_bytes() == 0; });
  size_t bytes = 0;
  for (const Kernel* kernel : kernels) bytes = std::max(bytes, kernel->scratch_bytes());
  if (bytes == 0) return;
  scratch_bytes_ = static_cast<int64_t>(bytes);
  if (options_.own_memory_is_lent) return;
  scratch_ = backend_.allocate(bytes, "what a plan's programs pass between their kernels");
  for (Kernel* kernel : kernels) kernel->use_scratch(scratch_, bytes);
}

DimValues Session::Impl::sizes_in(int loop) const {
  if (loop < 0) return sizes_;
  require(loop < static_cast<int>(plan_.loops.size()),
          "the plan has no loop over row blocks " + std::to_string(loop));
  return sizes_of_row_block(plan_.loops[loop], sizes_, 0);
}

// Checks a range of columns, or a vector read along the other dimension.
void Session::Impl::check_view(const Memory& view) const {
  const Memory& base = memory_[slot_of(view.tensor->view_of)];
  const int64_t offset = column_offset(view);
  const bool fits = view.tensor->transposed
                        ? view.shape.rows == base.shape.cols &&
                              view.shape.cols == base.shape.rows &&
                              (view.shape.rows == 1 || view.shape.cols == 1) && offset == 0
                        : view.shape.rows == base.shape.rows && offset >= 0 &&
                              offset + view.shape.cols <= base.shape.cols;
  require(fits && view.tensor->decl.dtype == base.tensor->decl.dtype,
          "tensor '" + view.tensor->decl.name + "', " +
              describe(view.tensor->decl.dtype, view.shape.rows, view.shape.cols) +
              " from column " + std::to_string(offset) + ", is no view of '" +
              view.tensor->view_of + "', " +
              describe(base.tensor->decl.dtype, base.shape.rows, base.shape.cols));
}

int64_t Session::Impl::column_offset(const Memory& view) const {
  const Dim& dim = view.tensor->column_offset;
  return dim.is_constant() ? dim.constant() : dim.evaluate(sizes_);
}

int Session::Impl::owner_of(int slot) const {
  while (!memory_[slot].tensor->view_of.empty()) slot = slot_of(memory_[slot].tensor->view_of);
  return slot;
}

void Session::Impl::place_own() {
  for (const auto& [slot, offset] : places_) memory_[slot].view.data = at(offset);
}

void Session::Impl::lend(std::byte* memory) {
  invariant(options_.own_memory_is_lent, "memory is lent where the session was told that it is");
  if (memory == own_.get()) return;
  own_ = {BackendMemory(), memory};  // the caller's memory
  place_own();
  if (scratch_bytes_ != 0) {
    scratch_ = {BackendMemory(), memory + round_up(arena_.total_bytes(), kCacheLine)};
    for (Kernel* kernel : scratch_users_)
      kernel->use_scratch(scratch_, static_cast<size_t>(scratch_bytes_));
  }
  forward_.is_stale = backward_.is_stale = true;
}

std::byte* Session::Impl::at(int64_t offset) const {
  if (offset >= arena_.lent_bytes) return own_.get() + offset - arena_.lent_bytes;
  return static_cast<std::byte*>(options_.result_memory.view().data) + offset;
}

bool Session::Impl::owns(std::string_view name) const {
  const PlanTensor& tensor = *memory_[owner_of(slot_of(name))].tensor;
  return !is_callers(tensor.role) || arena_.results.contains(tensor.decl.name);
}

void Session::Impl::prepare(const std::vector<PlanStep>& steps, Backend& backend,
                            PreparedPhase& phase) {
  std::set<int> read;  // owners that this and earlier steps read
  for (const PlanStep& step : steps) {
    PreparedStep prepared;
    prepared.name = step.name;
    std::set<int> overwritten;
    std::vector<TensorDecl> decls;
    for (const StepTensor& use : step_tensors(step)) {
      const int slot = slot_of(use.name);  // plan_arena has checked that it exists
      const PlanTensor& tensor = *memory_[slot].tensor;
      const TensorRole role = memory_[owner_of(slot)].tensor->role;
      require(!use.written || (role != TensorRole::input && role != TensorRole::parameter),
              "step '" + step.name + "' writes '" + use.name + "', which the caller gives");
      if (!owns(use.name)) phase.given[owner_of(slot)] |= use.written;
      if (use.read) read.insert(owner_of(slot));
      if (use.written && !owns(use.name)) overwritten.insert(slot);
      prepared.tensors.push_back(slot);
      decls.push_back(tensor.decl);
    }
    for (int slot : overwritten)
      if (!read.contains(owner_of(slot))) phase.overwritten.push_back(slot);
    prepared.views.resize(prepared.tensors.size());
    prepared.loop = step.loop;
    const DimValues sizes = sizes_in(step.loop);
    if (const auto* program = std::get_if<Program>(&step.work)) {
      require(program->tensors == decls,
              "step '" + step.name + "' declares a tensor otherwise than the plan does");
      prepared.kernel = backend.prepare(*program, sizes);
      if (step.loop >= 0) prepare_blocks(step, backend, prepared);
    } else {
      require(step.loop < 0, "step '" + step.name + "' calls a function in a loop over row blocks");
      prepared.kernel = backend.prepare(std::get<OpaqueCall>(step.work), decls, sizes);
    }
    phase.steps.push_back(std::move(prepared));
  }
}

void Session::Impl::prepare_blocks(const PlanStep& step, Backend& backend,
                                   PreparedStep& prepared) const {
  const RowBlocks& loop = plan_.loops[step.loop];
  const auto& program = std::get<Program>(step.work);
  for (const TensorDecl& decl : program.tensors) {
    const bool is_local = memory_[owner_of(slot_of(decl.name))].tensor->loop == step.loop;
    const bool is_whole = is_local || !is_sliced(decl, loop) || row_blocks_of(loop, sizes_) == 1;
    require(is_whole || (decl.lanes == 1 && (decl.kind != TensorKind::column_partial ||
                                             loop.rows % kPartialSpan == 0)),
            "step '" + step.name + "': partial '" + decl.name + "' cannot be cut into blocks of " +
                std::to_string(loop.rows) + " rows");
    require(is_local || !decl.shape.cols.terms().contains(loop.symbol),
            "step '" + step.name + "': '" + decl.name + "' is as wide as the loop has rows");
  }
  require(!step.later || step.later->tensors == program.tensors,
          "step '" + step.name + "' has other tensors in later blocks");
  const int64_t last = row_blocks_of(loop, sizes_) - 1;
  const DimValues first_sizes = sizes_of_row_block(loop, sizes_, 0);
  const DimValues last_sizes = sizes_of_row_block(loop, sizes_, last);
  const bool has_shorter = last_sizes != first_sizes;
  if (has_shorter) prepared.shorter = backend.prepare(program, last_sizes);
  if (!step.later || last == 0) return;
  prepared.later = backend.prepare(*step.later, first_sizes);
  if (has_shorter) prepared.later_shorter = backend.prepare(*step.later, last_sizes);
}

int Session::Impl::slot_of(std::string_view name) const {
  const auto found = slots_.find(name);
  if (found == slots_.end())
    throw Error("the plan has no tensor named '" + std::string(name) + "'");
  return found->second;
}

// Why the caller cannot bind this, as the end of a sentence; empty: it can.
std::string Session::Impl::why_not_bound(std::string_view name) const {
  const auto quoted = [&] { return "'" + std::string(name) + "'"; };
  const auto found = slots_.find(name);
  if (found == slots_.end()) {
    return "the plan has no tensor named " + quoted() +
           " (or nothing that was asked for depends on it)";
  }
  const Memory& memory = memory_[found->second];
  if (!is_callers(memory.tensor->role) || !memory.tensor->view_of.empty()) {
    return "tensor " + quoted() +
           " is the plan's own; only inputs, parameters and outputs are bound";
  }
  if (owns(name)) {
    return "tensor " + quoted() +
           " is the session's own (SessionOptions::own_results): read it where view() says, and "
           "bind inputs and parameters only";
  }
  return "";
}

std::string Session::Impl::why_not_bound(int slot, const TensorView& view) const {
  const TensorDecl& decl = memory_[slot].tensor->decl;
  const std::string why = why_unfit(decl.dtype, memory_[slot].shape, view);
  return why.empty() ? "" : "tensor '" + decl.name + "' " + why;
}

std::string Session::Impl::why_not_bound(std::string_view name, const TensorView& view) const {
  const std::string why = why_not_bound(name);
  return why.empty() ? why_not_bound(slot_of(name), view) : why;
}

std::string Session::Impl::why_elsewhere(std::string_view name, const Tensor& tensor) const {
  if (tensor.is_on_host() == backend_.is_on_host()) return "";
  return "tensor '" + std::string(name) + "' lies in the memory of " +
         (tensor.is_on_host() ? "the host" : "a GPU") + ", where the backend '" +
         std::string(backend_.name()) +
         "' cannot use it: make it with Tensor(dtype, rows, cols, backend)";
}

int Session::Impl::slot(std::string_view name) const {
  const std::string why = why_not_bound(name);
  require(why.empty(), why);
  return slot_of(name);
}

void Session::Impl::bind(std::string_view name, const TensorView& view) { bind(slot(name), view); }

void Session::Impl::bind(int slot, const TensorView& view) {
  const std::string why = why_not_bound(slot, view);
  require(why.empty(), why);
  Memory& memory = memory_[slot];
  memory.kept = {};
  if (memory.view.data == view.data && memory.view.row_stride == view.row_stride) return;
  memory.view = view;
  forward_.is_stale = backward_.is_stale = true;
}

void Session::Impl::bind(std::string_view name, const Tensor& tensor) {
  const std::string why = why_elsewhere(name, tensor);
  require(why.empty(), why);
  bind(name, tensor.view());
  memory_[slot_of(name)].kept = tensor;
}

void Session::Impl::bind(const TensorMap& tensors) {
  std::string problems;
  const auto add = [&](const std::string& problem) {
    if (!problem.empty()) problems += (problems.empty() ? "" : "; ") + problem;
  };
  for (const auto& [name, tensor] : tensors) {
    const std::string why = why_not_bound(name, tensor.view());
    add(why.empty() ? why_elsewhere(name, tensor) : why);
  }
  for (const std::string& name : missing())
    if (!tensors.contains(name)) add("tensor '" + name + "' is missing");
  require(problems.empty(), problems);
  for (const auto& [name, tensor] : tensors) bind(name, tensor);
}

bool Session::Impl::takes(std::string_view name) const {
  const auto found = slots_.find(name);
  if (found == slots_.end()) return false;
  const PlanTensor& tensor = *memory_[found->second].tensor;
  return is_callers(tensor.role) && tensor.view_of.empty() && !owns(name);
}

std::vector<std::string> Session::Impl::missing() const {
  std::set<int> slots;
  for (const PreparedPhase* phase : {&forward_, &backward_})
    for (const auto& [slot, is_written] : phase->given)
      if (memory_[slot].view.data == nullptr) slots.insert(slot);
  std::vector<std::string> names;
  for (int slot : slots) names.push_back(memory_[slot].tensor->decl.name);
  return names;
}

TensorMap Session::Impl::allocate() {
  TensorMap made;
  for (const std::string& name : missing()) {
    const Memory& memory = memory_[slot_of(name)];
    const Tensor tensor(memory.tensor->decl.dtype, memory.shape.rows, memory.shape.cols, backend_);
    bind(name, tensor);
    made.emplace(name, tensor);
  }
  return made;
}

Tensor Session::Impl::tensor(std::string_view name) const {
  const Memory& memory = memory_[slot_of(name)];
  if (memory.kept.view().data != nullptr) return memory.kept;
  return Tensor(view(name), backend_);
}

TensorView Session::Impl::resolve(int slot) const {
  const Memory& memory = memory_[slot];
  if (memory.tensor->view_of.empty()) return memory.view;
  TensorView base = resolve(slot_of(memory.tensor->view_of));
  if (base.data == nullptr) return base;
  base.data = static_cast<std::byte*>(base.data) + column_offset(memory) * size_of(base.dtype);
  if (memory.tensor->transposed) {
    if (base.rows != 1 && base.row_stride != 1) {
      throw Error("tensor '" + memory.tensor->view_of + "' is also read as a row: its " +
                  std::to_string(base.rows) + " elements must not lie " +
                  std::to_string(base.row_stride) + " apart");
    }
    base.row_stride = memory.shape.cols;
  }
  base.rows = memory.shape.rows;
  base.cols = memory.shape.cols;
  return base;
}

std::vector<GivenTensor> Session::Impl::given_tensors(const PreparedPhase& phase) const {
  std::vector<GivenTensor> given;
  for (const auto& [slot, is_written] : phase.given)
    given.push_back({memory_[slot].tensor->decl.name, memory_[slot].view, is_written});
  return given;
}

void Session::Impl::run(PreparedPhase& phase, const char* name, const BeforeStep& before) {
  if (phase.is_stale) {
    std::set<std::string> unbound;
    const PreparedStep* first = nullptr;  // the first step that needs one of them
    for (PreparedStep& step : phase.steps) {
      for (size_t i = 0; i < step.tensors.size(); ++i) {
        step.views[i] = resolve(step.tensors[i]);
        if (step.views[i].data != nullptr) continue;
        unbound.insert("'" + memory_[step.tensors[i]].tensor->decl.name + "'");
        if (first == nullptr) first = &step;
      }
    }
    require_bound(unbound, name, first == nullptr ? "" : first->name);
    check_overlaps(given_tensors(phase));
    phase.is_stale = false;
  }
  if (options_.poison) {
    poison_own(&phase == &forward_);
    if (scratch_ != nullptr) backend_.fill(bytes_view(scratch_.get(), scratch_bytes_), kPoison);
    for (int slot : phase.overwritten) backend_.fill(resolve(slot), kPoison);
  }
  phase.timings.clear();
  if (options_.timing) {
    for (const PreparedStep& step : phase.steps) phase.timings.push_back({step.name, 0});
  }
  const auto run_observed = [&](size_t i, int64_t block) {
    if (observer_) {
      observer_(phase.steps[i].name, [&] { run_step(phase.steps[i], block); });
    } else {
      run_step(phase.steps[i], block);
    }
  };
  const auto run_timed = [&](size_t i, int64_t block) {
    if (!options_.timing) return run_observed(i, block);
    const auto start = std::chrono::steady_clock::now();
    run_observed(i, block);
    backend_.synchronize();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    phase.timings[i].seconds += seconds.count();
  };
  const int others = &phase == &forward_ ? 0 : static_cast<int>(forward_.steps.size());
  for (size_t i = 0; i < phase.steps.size();) {
    const int loop = phase.steps[i].loop;
    size_t end = i + 1;
    while (loop >= 0 && end < phase.steps.size() && phase.steps[end].loop == loop) ++end;
    for (size_t k = i; k < end; ++k) copy_before(k, &phase == &forward_);
    for (size_t k = i; before && k < end; ++k) before(k);
    if (options_.poison)
      poison_results(others + static_cast<int>(i), others + static_cast<int>(end));
    const int64_t blocks = loop < 0 ? 1 : row_blocks_of(plan_.loops[loop], sizes_);
    for (int64_t block = 0; block < blocks; ++block) {
      if (loop >= 0 && options_.poison) poison_block(loop);
      for (size_t k = i; k < end; ++k) run_timed(k, block);
    }
    i = end;
  }
  copy_before(phase.steps.size(), &phase == &forward_);
  if (before) before(phase.steps.size());
}

void Session::Impl::run_step(PreparedStep& step, int64_t block) {
  if (step.loop < 0) return step.kernel->run(step.views);
  const RowBlocks& loop = plan_.loops[step.loop];
  const bool is_shorter = step.shorter != nullptr && block == row_blocks_of(loop, sizes_) - 1;
  Kernel* kernel = is_shorter ? step.shorter.get() : step.kernel.get();
  if (block > 0 && step.later) kernel = is_shorter ? step.later_shorter.get() : step.later.get();
  std::vector<TensorView> views;
  for (size_t i = 0; i < step.views.size(); ++i)
    views.push_back(part(step.views[i], step.tensors[i], loop, block));
  kernel->run(views);
}

TensorView Session::Impl::part(const TensorView& view, int slot, const RowBlocks& loop,
                               int64_t block) const {
  const TensorDecl& decl = memory_[slot].tensor->decl;
  const PhysicalShape shape = physical_shape(decl, sizes_of_row_block(loop, sizes_, block));
  TensorView rows = view;
  if (memory_[owner_of(slot)].tensor->loop >= 0) {
    rows.rows = shape.rows;
    rows.cols = shape.cols;
    return rows;
  }
  if (!is_sliced(decl, loop)) return view;
  rows.rows = shape.rows;
  const int64_t before = block * physical_shape(decl, sizes_of_row_block(loop, sizes_, 0)).rows;
  rows.data = static_cast<std::byte*>(view.data) + before * view.row_stride * size_of(view.dtype);
  return rows;
}

// Poisons all memory except what the backward needs from the forward. All at once, because filling
// between steps would keep them from overlapping as they do on a GPU.
void Session::Impl::poison_own(bool forward) {
  std::map<int64_t, int64_t> kept = arena_.untouched;  // start and number of bytes to keep
  for (const int64_t end : {arena_.lent_bytes, arena_.lent_bytes + arena_.total_bytes()})
    kept.emplace(end, 0);  // do not fill across the end of lent memory
  for (const auto* slots : {&arena_.saved, &arena_.results}) {
    for (const auto& [name, slot] : *slots)
      if (!forward && slot.phase == Phase::forward) kept[slot.offset] = slot.bytes;
  }
  int64_t from = 0;
  for (const auto& [offset, bytes] : kept) {
    if (offset > from) backend_.fill(bytes_view(at(from), offset - from), kPoison);
    from = offset + round_up(bytes, kCacheLine);
  }
}

// Poisons results that steps [first, end) write first; before that, other tensors use their memory.
void Session::Impl::poison_results(int first, int end) {
  for (const auto& [name, slot] : arena_.results) {
    if (first <= slot.first_step && slot.first_step < end)
      backend_.fill(memory_[slot_of(name)].view, kPoison);
  }
}

// Poisons a loop's own tensors, so that the previous block cannot be read again.
void Session::Impl::poison_block(int loop) {
  for (const Memory& memory : memory_) {
    const bool is_local = memory.tensor->loop == loop && memory.tensor->view_of.empty();
    if (is_local && memory.view.data != nullptr) backend_.fill(memory.view, kPoison);
  }
}

void Session::Impl::forward(const BeforeStep& before) {
  has_forward_ = false;  // until the forward is complete
  run(forward_, "forward", before);
  has_forward_ = true;
}

void Session::Impl::backward(const BeforeStep& before) {
  require(
      has_forward_,
      "backward: there is no forward to follow, or a backward has overwritten what it saved; call "
      "forward() before");
  if (spends_saved_) has_forward_ = false;
  run(backward_, "backward", before);
}

TensorView Session::Impl::view(std::string_view name) const {
  const TensorView view = resolve(slot_of(name));
  require(view.data != nullptr,
          "tensor '" + std::string(name) + "' has no memory: it is not bound, or no step uses it");
  return view;
}

Session::Session(Plan plan, Backend& backend, DimValues sizes, SessionOptions options)
    : impl_(
          std::make_unique<Impl>(std::move(plan), backend, std::move(sizes), std::move(options))) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

int Session::slot(std::string_view name) const { return impl_->slot(name); }
void Session::bind(int slot, const TensorView& view) { impl_->bind(slot, view); }
void Session::bind(std::string_view name, const TensorView& view) { impl_->bind(name, view); }
void Session::bind(std::string_view name, const Tensor& tensor) { impl_->bind(name, tensor); }
void Session::bind(const TensorMap& tensors) { impl_->bind(tensors); }
void Session::bind_known(const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors)
    if (impl_->takes(name)) impl_->bind(name, tensor);
}
std::vector<std::string> Session::missing() const { return impl_->missing(); }
TensorMap Session::allocate() { return impl_->allocate(); }
void Session::forward() { impl_->forward({}); }
void Session::forward(const BeforeStep& before) { impl_->forward(before); }
void Session::backward() { impl_->backward({}); }
void Session::backward(const BeforeStep& before) { impl_->backward(before); }
void Session::observe(Observer observer) { impl_->observer_ = std::move(observer); }
const Plan& Session::plan() const { return impl_->plan_; }
const DimValues& Session::sizes() const { return impl_->sizes_; }
TensorView Session::view(std::string_view name) const { return impl_->view(name); }
Tensor Session::tensor(std::string_view name) const { return impl_->tensor(name); }
const std::vector<StepTiming>& Session::forward_timings() const { return impl_->forward_.timings; }
const std::vector<StepTiming>& Session::backward_timings() const {
  return impl_->backward_.timings;
}
bool Session::owns(std::string_view name) const { return impl_->owns(name); }
int64_t Session::saved_bytes() const { return impl_->arena_.saved_bytes; }
int64_t Session::arena_bytes() const { return impl_->arena_.bytes; }
int64_t Session::scratch_bytes() const { return impl_->scratch_bytes_; }
int64_t Session::lent_bytes() const { return impl_->lent_bytes(); }
void Session::lend(std::byte* memory) { impl_->lend(memory); }

}  // namespace coda
