// SPDX-License-Identifier: Apache-2.0
// The reference backend as if its memory were not the host's, as a GPU's is: addresses that callers
// see are no memory of the host, so whoever reads or writes there crashes. As on a GPU, kernels and
// copies also take memory of allocate_on_host at its own address.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/reference_backend.h"

namespace coda {

class FarBackend : public ReferenceBackend {
 public:
  std::string_view name() const override { return "far"; }
  bool is_on_host() const override { return false; }

  BackendMemory allocate(size_t bytes, std::string_view what) override {
    const BackendMemory here = ReferenceBackend::allocate(bytes, what);
    return {here, here.get() + kFar};
  }
  BackendMemory allocate_on_host(size_t bytes, std::string_view what) override {
    const BackendMemory memory = ReferenceBackend::allocate_on_host(bytes, what);
    pinned_[memory.get()] = bytes;
    return memory;
  }
  void fill(const TensorView& view, std::byte value) override {
    ReferenceBackend::fill(near(view), value);
  }
  void copy_in(const TensorView& host, const TensorView& own) override {
    ReferenceBackend::copy_in(host, near(own));
  }
  void copy_out(const TensorView& own, const TensorView& host) override {
    ReferenceBackend::copy_out(near(own), host);
  }
  std::unique_ptr<Kernel> prepare(const Program& program, const DimValues& sizes) override {
    return std::make_unique<FarKernel>(*this, ReferenceBackend::prepare(program, sizes));
  }
  std::unique_ptr<Kernel> prepare(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                  const DimValues& sizes) override {
    return std::make_unique<FarKernel>(*this, ReferenceBackend::prepare(call, tensors, sizes));
  }

 private:
  static constexpr std::ptrdiff_t kFar = std::ptrdiff_t{1} << 56;  // no address of a process

  TensorView near(TensorView view) const {
    const auto* const data = static_cast<const std::byte*>(view.data);
    const auto after = pinned_.upper_bound(data);
    if (after != pinned_.begin()) {
      const auto& [first, bytes] = *std::prev(after);
      if (data < first + bytes) return view;
    }
    view.data = static_cast<std::byte*>(view.data) - kFar;
    return view;
  }

  class FarKernel : public Kernel {
   public:
    FarKernel(const FarBackend& backend, std::unique_ptr<Kernel> kernel)
        : backend_(backend), kernel_(std::move(kernel)) {}
    void run(std::span<const TensorView> tensors) override {
      std::vector<TensorView> here;
      for (const TensorView& tensor : tensors) here.push_back(backend_.near(tensor));
      kernel_->run(here);
    }

   private:
    const FarBackend& backend_;
    std::unique_ptr<Kernel> kernel_;
  };

  std::map<const std::byte*, size_t> pinned_;  // bytes of what is allocated on the host
};

}  // namespace coda
