// SPDX-License-Identifier: Apache-2.0
// A backend that runs its work only when somebody waits for it, like a device that is far behind
// its host. If the host changes memory too early, the results are wrong. Overlapping copies run as
// late as a device may run them, or as early.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/far_backend.h"

namespace coda {

class LateBackend : public FarBackend {
 public:
  bool copies_early = false;  // overlapping copies run when they are started

  BackendMemory allocate(size_t bytes, std::string_view what) override {
    return kept(FarBackend::allocate(bytes, what));
  }
  BackendMemory allocate_on_host(size_t bytes, std::string_view what) override {
    return kept(FarBackend::allocate_on_host(bytes, what));
  }
  void fill(const TensorView& view, std::byte value) override {
    later([=, this] { FarBackend::fill(view, value); });
  }
  void copy_in(const TensorView& host, const TensorView& own) override {
    synchronize();
    FarBackend::copy_in(host, own);
  }
  void copy_out(const TensorView& own, const TensorView& host) override {
    synchronize();
    FarBackend::copy_out(own, host);
  }
  void synchronize() override { mark()(); }
  void start_copy_in(const TensorView& host, const TensorView& own) override {
    later([=, this] { FarBackend::copy_in(host, own); });
  }
  void start_copy_out(const TensorView& own, const TensorView& host) override {
    later([=, this] { FarBackend::copy_out(own, host); });
  }
  std::function<void()> copy_out_concurrently(const std::vector<CopyOut>& copies) override {
    for (const CopyOut& copy : copies) start_copy_out(copy.own, copy.host);
    return mark();
  }
  std::function<void()> overlap(const std::function<void()>& copies) override {
    const auto started = std::make_shared<std::vector<std::function<void()>>>();
    collected_ = started.get();
    copies();
    collected_ = nullptr;
    const auto run = [started] {
      for (const auto& copy : *started) copy();
    };
    if (copies_early) later(run);
    return [this, run] {
      if (!copies_early) later(run);
    };
  }
  std::function<void()> mark() override {
    const std::lock_guard lock(mutex_);
    return [this, end = done_ + waiting_.size()] { run_until(end); };
  }
  std::function<double()> stamp() override {
    return [reach = mark()] {
      reach();
      return 0.0;
    };
  }
  std::unique_ptr<Kernel> prepare(const Program& program, const DimValues& sizes) override {
    return std::make_unique<LateKernel>(*this, FarBackend::prepare(program, sizes));
  }
  std::unique_ptr<Kernel> prepare(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                  const DimValues& sizes) override {
    return std::make_unique<LateKernel>(*this, FarBackend::prepare(call, tensors, sizes));
  }

 private:
  class LateKernel : public Kernel {
   public:
    LateKernel(LateBackend& backend, std::shared_ptr<Kernel> kernel)
        : backend_(backend), kernel_(std::move(kernel)) {}
    void run(std::span<const TensorView> tensors) override {
      backend_.later([kernel = kernel_, all = std::vector(tensors.begin(), tensors.end())] {
        kernel->run(all);
      });
    }

   private:
    LateBackend& backend_;
    std::shared_ptr<Kernel> kernel_;
  };

  // Keeps the memory alive: pending work may use it after its owner has released it.
  BackendMemory kept(BackendMemory memory) {
    const std::lock_guard lock(mutex_);
    return memory_.emplace_back(std::move(memory));
  }
  void later(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    if (collected_ != nullptr) return collected_->push_back(std::move(work));
    waiting_.push_back(std::move(work));
  }
  void run_until(size_t end) {
    const std::lock_guard lock(mutex_);
    for (; done_ < end; ++done_) {
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      work();
    }
  }

  std::recursive_mutex mutex_;
  std::deque<std::function<void()>> waiting_;
  std::vector<std::function<void()>>* collected_ = nullptr;  // overlapping copies being started
  size_t done_ = 0;
  std::vector<BackendMemory> memory_;
};

}  // namespace coda
