// SPDX-License-Identifier: Apache-2.0
// Programs that are announced together are lowered and compiled in parallel; the results wait for
// prepare().
#include "gpu/gpu_backend.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "coda/error.h"
#include "coda/gpu_card.h"
#include "coda/plan.h"
#include "coda/rates.h"
#include "gpu/configure/tuned_table.h"
#include "gpu/cudnn/attention_kernel.h"
#include "gpu/jit/parallel_for.h"
#include "gpu/launch/captured_graph.h"
#include "gpu/launch/launched_kernel.h"
#include "gpu/launch/operation_launches.h"
#include "gpu/launch/staged_copies.h"
#include "gpu/launch/stream_event.h"
#include "gpu/lower.h"
#include "gpu/nccl/nccl_communicator.h"
#include "gpu/tuned_file.h"
#include "gpu/workspace.h"
#include "operations/attention.h"
#include "runtime/operation_call.h"

namespace coda::gpu {
namespace {

// `decls`: in the order of the step's tensors.
std::vector<KernelTensor> kernel_tensors(const std::string& name, const PlanStep& step,
                                         std::span<const TensorDecl> decls,
                                         const DimValues& sizes) {
  std::vector<KernelTensor> tensors;
  for (StepTensor& use : step_tensors(step)) {
    const TensorDecl& decl = decls[tensors.size()];
    try {
      tensors.push_back(
          {std::move(use.name), use.read, use.written, decl.dtype, physical_shape(decl, sizes)});
    } catch (const Error& error) {
      throw Error("program '" + name + "': tensor '" + decl.name + "': " + error.what());
    }
  }
  return tensors;
}

// A program's kernels for tensors with these row strides (empty: dense).
struct Lowered {
  Program program;
  DimValues sizes;
  std::vector<int64_t> row_strides;
  bool owns_padding = false;
  KernelPlan plan;
  std::vector<KernelLaunch> launches;  // the launches of `plan`, compiled
};

LowerOptions with_strides(const LowerOptions& options, std::span<const int64_t> row_strides,
                          bool owns_padding = false) {
  LowerOptions strided = options;
  strided.row_strides.assign(row_strides.begin(), row_strides.end());
  strided.owns_padding = owns_padding;
  return strided;
}

std::vector<Lowered> lower_all(
    std::span<const AnnouncedProgram> programs, const Lowering& lowering,
    const LowerOptions& options, unsigned threads,
    const std::function<std::vector<KernelLaunch>(const KernelPlan&)>& made) {
  std::vector<Lowered> all(programs.size());
  parallel_for(all.size(), threads, [&](size_t i) {
    const auto& [program, sizes, strides, owns] = programs[i];
    all[i] = {*program,
              sizes,
              strides,
              owns,
              lowering(*program, sizes, with_strides(options, strides, owns)),
              {}};
    all[i].launches = made(all[i].plan);
  });
  return all;
}

// The order in which to compile programs: one of each set with equal texts, and the longest texts
// first, because they take longest.
std::vector<size_t> compile_order(const std::vector<Lowered>& programs) {
  std::set<std::vector<std::string_view>> seen;
  std::vector<std::pair<size_t, size_t>> by_length;
  for (size_t i = 0; i < programs.size(); ++i) {
    std::vector<std::string_view> sources;
    size_t length = 0;
    for (const KernelLaunch& launch : programs[i].launches) {
      sources.push_back(launch.source);
      length = std::max(length, launch.source.size());
    }
    if (seen.insert(std::move(sources)).second) by_length.emplace_back(length, i);
  }
  std::ranges::stable_sort(by_length, std::greater(), &std::pair<size_t, size_t>::first);
  std::vector<size_t> order;
  for (const auto& [length, i] : by_length) order.push_back(i);
  return order;
}

// The GPU's card; if it is not known, the first card of its capability, else an H200.
const GpuCard& card_like(const DeviceInfo& gpu) {
  if (const GpuCard* card = find_gpu_card(gpu.name)) return *card;
  for (const GpuCard& card : gpu_cards())
    if (card.major == gpu.major && card.minor == gpu.minor) return card;
  return gpu_card("H200");
}

// Once for each kind of GPU.
void say_what_was_tested(const DeviceInfo& gpu, const Target& target) {
  static std::mutex mutex;
  static std::set<std::string> said;
  if (&target == &sm90() || (gpu.major == sm90().major && gpu.minor == sm90().minor)) return;
  const std::lock_guard lock(mutex);
  if (!said.insert(gpu.name).second) return;
  std::fprintf(
      stderr,
      "coda: %s runs kernels of the target %s, which were tested on an H200 only, never on "
      "this GPU: docs/gpus.md says how to check them\n",
      gpu.name.c_str(), std::string(target.name).c_str());
}

class GpuBackend : public Backend {
 public:
  explicit GpuBackend(const GpuOptions& options)
      : lowering_(
            options.lowering
                ? options.lowering
                : [](const Program& program, const DimValues& sizes,
                     const LowerOptions& with) { return plan_program(program, sizes, with).plan; }),
        compile_threads_(options.compile_threads),
        takes_compiled_(options.takes_compiled),
        attention_(options.attention),
        state_(std::make_shared<GpuState>()) {
    const auto context = std::make_shared<const Context>(options.device);
    state_->kernels = std::make_unique<LoadedKernels>(context, options.cache, options.target);
    lower_options_.target = &state_->kernels->target();
    lower_options_.multiprocessors = static_cast<uint32_t>(context->info().multiprocessors);
    lower_options_.is_h100 = is_h100(context->info().name);
    state_->context = context;
    rates_ = rates_of(card_like(context->info()));
    say_what_was_tested(context->info(), *lower_options_.target);
    state_->dependent_launch = options.dependent_launch &&
                               lower_options_.target->overlaps_launches &&
                               driver().version >= cuda::kDependentLaunchInGraphs;
    lower_options_.tuned =
        tuned_rows_of(options.cache.folder, context->info(), state_->kernels->builder());
  }

  std::string_view name() const override { return "gpu"; }
  std::string why_no_eight_bits() const override {
    const std::string why = gpu::why_no_eight_bits(*lower_options_.target);
    return why.empty() ? "" : state_->context->info().name + " has no kernels for " + why;
  }
  Rates rates() const override { return rates_; }
  bool is_on_host() const override { return false; }

  int64_t workspace_bytes(const Plan& plan, const DimValues& sizes) override {
    return gpu::workspace_bytes(plan, sizes, lower_options_, attention_);
  }

  int64_t free_bytes() override {
    const Context::Scope scope(*state_->context);
    size_t free = 0;
    size_t total = 0;
    check_driver(driver().mem_get_info(&free, &total), "asking how much memory the GPU has free");
    return static_cast<int64_t>(free);
  }

  void use_stream(const Stream& stream) override {
    stream_ = stream;
    state_->stream = stream.handle();
  }

  // cuDNN compiles its graphs on one background thread, because it does not support concurrent
  // compilation.
  void announce(std::span<const AnnouncedProgram> programs,
                std::span<const AnnouncedCall> calls) override {
    std::future<void> attention = std::async(std::launch::async, [&] {
      for (const auto& [call, tensors, sizes] : calls) cudnn_attention(*call, tensors, sizes);
    });
    announced_ = lower_all(
        programs, lowering_, lower_options_, compile_threads_, [this](const KernelPlan& plan) {
          return takes_compiled_ ? state_->kernels->soonest(plan) : gpu::make(plan);
        });
    const auto make = [this](Lowered& one) {
      bool spills = false;
      for (const KernelLaunch& launch : one.launches)
        spills = state_->kernels->compile(one.program.name, launch.source) != 0 || spills;
      if (spills) one.launches = state_->kernels->make(one.program.name, one.plan);
    };
    const std::vector<std::pair<std::string, KernelLaunch>> of_calls = launches_of(calls);
    const std::vector<size_t> order = compile_order(announced_);
    parallel_for(of_calls.size() + order.size(), compile_threads_, [&](size_t i) {
      if (i < of_calls.size()) {
        state_->kernels->compile(of_calls[i].first, of_calls[i].second.source);
      } else {
        make(announced_[order[i - of_calls.size()]]);
      }
    });
    parallel_for(announced_.size(), compile_threads_, [&](size_t i) { make(announced_[i]); });
    attention.get();
  }

  std::unique_ptr<Kernel> prepare(const Program& program, const DimValues& sizes) override {
    verify(program);
    auto tensors = kernel_tensors(program.name, {"", {}, program, {}}, program.tensors, sizes);
    Lowered announced = take_announced(program, sizes);
    announced.program = {};  // the closure has its own
    announced.plan = {};     // its launches are made
    const std::vector<int64_t> expected = announced.row_strides;
    // Keeps what is needed to lower the program again for other row strides.
    auto relower = [lowering = lowering_, program, sizes, options = lower_options_,
                    announced =
                        std::move(announced)](std::span<const int64_t> row_strides) mutable {
      const bool is_expected = std::ranges::equal(row_strides, announced.row_strides);
      if (is_expected && !announced.launches.empty())
        return KernelPlan(std::exchange(announced.launches, {}));
      return lowering(program, sizes,
                      with_strides(options, row_strides, is_expected && announced.owns_padding));
    };
    return std::make_unique<LaunchedKernel>(state_, program.name, std::move(tensors),
                                            std::move(relower), expected);
  }

  std::unique_ptr<Kernel> prepare(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                  const DimValues& sizes) override {
    const Operation& operation = find_operation(call.function);
    if (auto kernel = cudnn_attention(call, tensors, sizes)) return kernel;
    if (operation.gpu_function != nullptr) {
      const OperationCall prepared = operation_call(call, tensors, sizes);
      return make_function_kernel(state_, prepared, operation.gpu_function(prepared));
    }
    auto checked = kernel_tensors(call.function, {"", {}, call, {}}, tensors, sizes);
    auto relower = [call, decls = std::vector<TensorDecl>(tensors.begin(), tensors.end()), sizes,
                    options = lower_options_](std::span<const int64_t> row_strides) {
      return lower_call(call, decls, sizes, with_strides(options, row_strides));
    };
    return std::make_unique<LaunchedKernel>(state_, call.function, std::move(checked),
                                            std::move(relower));
  }

  BackendMemory allocate(size_t bytes, std::string_view what) override {
    const auto memory =
        std::make_shared<DeviceMemory>(state_->context, bytes, state_->stream, std::string(what));
    return {memory, memory->data()};
  }

  void fill(const TensorView& view, std::byte value) override {
    const Context::Scope scope(*state_->context);
    fill_bytes(view, static_cast<unsigned char>(value), state_->stream);
  }

  void copy_in(const TensorView& host, const TensorView& own) override {
    const Context::Scope scope(*state_->context);
    if (StagedCopies::are_worth(host, own))
      return staged().to_device({{{host, own}}}, {state_->context, state_->stream});
    copy_to_device(host, own, state_->stream);
    synchronize();
  }

  void copy_out(const TensorView& own, const TensorView& host) override {
    const Context::Scope scope(*state_->context);
    if (StagedCopies::are_worth(host, own))
      return staged().to_host({{{host, own}}}, {state_->context, state_->stream});
    copy_to_host(own, host, state_->stream);
    synchronize();
  }

  void synchronize() override {
    const Context::Scope scope(*state_->context);
    check_driver(driver().stream_synchronize(state_->stream), "waiting for the GPU");
  }

  BackendMemory allocate_on_host(size_t bytes, std::string_view what) override {
    return pinned_memory(state_->context, bytes, std::string(what));
  }

  void start_copy_in(const TensorView& host, const TensorView& own) override {
    const Context::Scope scope(*state_->context);
    copy_to_device(host, own, state_->stream);
  }

  void start_copy_out(const TensorView& own, const TensorView& host) override {
    const Context::Scope scope(*state_->context);
    copy_to_host(own, host, state_->stream);
  }

  // Runs on a thread, because the copies wait for pinned buffers.
  std::function<void()> copy_out_concurrently(const std::vector<CopyOut>& copies) override {
    const Context::Scope scope(*state_->context);
    if (concurrent_.valid()) concurrent_.wait();  // all copies share the buffers
    const auto before = std::make_shared<StreamEvent>(state_->context, state_->stream);
    concurrent_ = std::async(std::launch::async, [this, before, copies] {
                    const Context::Scope of_thread(*state_->context);
                    if (!concurrent_staging_) concurrent_staging_.emplace(state_->context);
                    std::vector<StagedCopies::Copy> staged;
                    for (const auto& [own, host] : copies) {
                      invariant(StagedCopies::are_for(host, own), "copies of dense matrices");
                      staged.push_back({host, own});
                    }
                    concurrent_staging_->to_host(staged, *before);
                  }).share();
    return [done = concurrent_] { done.get(); };
  }

  // Forks off the stream and joins it by events, so that a CUDA graph captures both.
  std::function<void()> overlap(const std::function<void()>& copies) override {
    const Context::Scope scope(*state_->context);
    if (!copy_stream_) copy_stream_.emplace(Stream::make());
    const DriverHandle own = copy_stream_->handle();
    StreamEvent(state_->context, state_->stream).hold(own);
    const DriverHandle stream = std::exchange(state_->stream, own);
    try {
      copies();
    } catch (...) {
      state_->stream = stream;
      throw;
    }
    state_->stream = stream;
    const auto end = std::make_shared<StreamEvent>(state_->context, own);
    return [state = state_, end] { end->hold(state->stream); };
  }

  std::function<void()> mark() override {
    return
        [event = std::make_shared<StreamEvent>(state_->context, state_->stream)] { event->wait(); };
  }

  std::function<double()> stamp() override {
    const auto here =
        std::make_shared<StreamEvent>(state_->context, state_->stream, StreamEvent::timed);
    std::shared_ptr<const StreamEvent> first = first_stamp_.lock();
    if (first == nullptr) first_stamp_ = first = here;
    return [first, here] { return here->seconds_since(*first); };
  }

  std::function<void()> record(std::function<void()> work) override {
    const Context::Scope scope(*state_->context);
    const Stream capturing = Stream::make();  // the default stream cannot be captured
    const auto graph = std::make_shared<CapturedGraph>(capturing.handle(), [&] {
      const DriverHandle stream = std::exchange(state_->stream, capturing.handle());
      try {
        work();
      } catch (...) {
        state_->stream = stream;
        throw;
      }
      state_->stream = stream;
    });
    return [state = state_, graph] {
      const Context::Scope running(*state->context);
      graph->run(state->stream);
    };
  }

  std::unique_ptr<Communicator> join(const ProcessPlace& place) override {
    return nccl::join(state_, place);
  }

 private:
  StagedCopies& staged() {
    if (!staged_) staged_.emplace(state_->context);
    return *staged_;
  }

  // The kernels of calls whose operations provide text, with the operations' names, without
  // duplicates.
  std::vector<std::pair<std::string, KernelLaunch>> launches_of(
      std::span<const AnnouncedCall> calls) const {
    std::vector<std::pair<std::string, KernelLaunch>> launches;
    std::set<std::string> seen;
    for (const auto& [call, tensors, sizes] : calls) {
      if (is_for_cudnn(*call, tensors, sizes) || find_operation(call->function).gpu == nullptr)
        continue;
      for (KernelLaunch& launch : lower_call(*call, tensors, sizes, lower_options_))
        if (seen.insert(launch.source).second)
          launches.emplace_back(call->function, std::move(launch));
    }
    return launches;
  }

  bool is_for_cudnn(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                    const DimValues& sizes) const {
    const bool is_attention = call.function == "attention" || call.function == "attention_backward";
    // cuDNN's attention does not support fp32.
    if (attention_ == GpuAttention::plain || !is_attention || tensors[0].dtype == DType::f32)
      return false;
    OperationCall prepared = operation_call(call, tensors, sizes);
    prepared.gpu_target = lower_options_.target->name;
    return !own_attention_is_fastest(prepared);
  }

  // Null if the call is not attention, or if the library's own kernel runs it: because that was
  // requested or is the fastest, because cuDNN is missing, or because cuDNN does not support the
  // call. In the last two cases a notice is printed once.
  std::unique_ptr<Kernel> cudnn_attention(const OpaqueCall& call,
                                          std::span<const TensorDecl> tensors,
                                          const DimValues& sizes) {
    if (!is_for_cudnn(call, tensors, sizes)) return nullptr;
    const OperationCall prepared = operation_call(call, tensors, sizes);
    std::string why = cudnn::why_not_cudnn(prepared);
    if (why.empty()) {
      try {
        const Context::Scope scope(*state_->context);
        if (cudnn_ == nullptr) cudnn_ = std::make_shared<cudnn::Library>();
        return cudnn::make_attention_kernel(state_, cudnn_, prepared,
                                            attention_ == GpuAttention::repeatable);
      } catch (const Error& error) {
        why = error.what();
      }
    }
    if (!std::exchange(noticed_attention_, true)) {
      std::fprintf(stderr, "coda: attention runs without cuDNN, on the library's kernels: %s\n",
                   why.c_str());
    }
    return nullptr;
  }

  // The announced program's kernels; without launches if it was not announced.
  Lowered take_announced(const Program& program, const DimValues& sizes) {
    const auto found =
        std::find_if(announced_.begin(), announced_.end(), [&](const Lowered& lowered) {
          return !lowered.launches.empty() && lowered.program.name == program.name &&
                 lowered.sizes == sizes && lowered.program == program;
        });
    if (found == announced_.end()) return {};
    return std::exchange(*found, {});
  }

  std::vector<Lowered> announced_;
  Lowering lowering_;
  LowerOptions lower_options_;
  Rates rates_;
  unsigned compile_threads_;
  bool takes_compiled_;
  GpuAttention attention_;
  bool noticed_attention_ = false;
  std::shared_ptr<GpuState> state_;
  std::optional<Stream> copy_stream_;
  std::optional<StagedCopies> staged_;
  std::optional<StagedCopies> concurrent_staging_;
  std::shared_future<void> concurrent_;  // the last copy_out_concurrently
  std::shared_ptr<cudnn::Library> cudnn_;
  // The origin of stamp(): the first stamp that is still in use, because CUDA's times are fp32.
  std::weak_ptr<const StreamEvent> first_stamp_;
  std::optional<Stream> stream_;  // keeps the stream alive
};

}  // namespace

std::unique_ptr<Backend> make_gpu_backend(const GpuOptions& options) {
  return std::make_unique<GpuBackend>(options);
}

}  // namespace coda::gpu
