// SPDX-License-Identifier: Apache-2.0
// A program or call as prepared launches. Descriptors and arguments are made once for each set of
// tensor addresses and cached, so a later run only launches. Nothing waits for the GPU. A run may
// be captured into a CUDA graph after the same tensors have been run once.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coda/backend.h"
#include "gpu/codegen/kernel_launch.h"
#include "gpu/launch/device_memory.h"
#include "gpu/launch/loaded_kernels.h"
#include "gpu/launch/tensor_map.h"

namespace coda::gpu {

// State shared by a backend's kernels.
struct GpuState {
  std::shared_ptr<const Context> context;
  std::unique_ptr<LoadedKernels> kernels;
  DriverHandle stream = nullptr;  // stream for the launches
  bool dependent_launch = false;  // of kernels that wait for their predecessors
};

struct KernelTensor {
  std::string name;
  bool read = false;
  bool written = false;
  // Checked when memory is seen for the first time; 0 rows: not checked.
  DType dtype = DType::f32;
  PhysicalShape shape{};
};

// Bytes of all tensors together, without overlap.
int64_t scratch_bytes_of(const std::vector<ScratchTensor>& tensors);

class LaunchedKernel : public Kernel {
 public:
  // Lowers the program for the row strides of its tensors; empty: dense tensors.
  using Lowering = std::function<KernelPlan(std::span<const int64_t> row_strides)>;

  // Compiles and loads the launches for these expected row strides.
  LaunchedKernel(std::shared_ptr<GpuState> state, std::string name,
                 std::vector<KernelTensor> tensors, Lowering lowering,
                 std::span<const int64_t> expected = {});

  void run(std::span<const TensorView> tensors) override;

  size_t scratch_bytes() const override;
  void use_scratch(const BackendMemory& memory, size_t bytes) override;

 private:
  // The launches for one set of row strides.
  struct Variant {
    std::vector<int64_t> row_strides;  // empty: dense
    std::vector<KernelLaunch> launches;
    std::vector<DriverHandle> functions;
    size_t shared_bytes = 0;  // scratch between launches
  };
  struct alignas(64) ArgumentBlock {
    std::byte bytes[64];
  };
  // A copy of a rectangle that TMA cannot address, at `offset` of the scratch memory.
  struct Staged {
    int tensor = -1;
    TensorView original;
    int64_t row_stride = 0;
    size_t offset = 0;
  };
  // The arguments for one set of addresses of the tensors and of the scratch between launches.
  struct Binding {
    std::vector<TensorView> places;  // the tensors, then the scratch between launches
    const Variant* variant = nullptr;
    const std::byte* shared = nullptr;  // the scratch between launches; null: it has none
    std::vector<Staged> staged;
    std::vector<std::vector<ArgumentBlock>> arguments;  // of each launch
  };

  const Binding& bind(std::span<const TensorView> tensors);
  const Variant& variant_for(std::span<const int64_t> row_strides);
  void make_tile_counter();
  bool is_of(const Binding& binding, std::span<const TensorView> tensors) const;
  void place_shared(Binding& binding);
  void stage(Binding& binding);
  void pack(Binding& binding) const;
  Rectangle rectangle_of(const Binding& binding, const TensorMapSpec& spec) const;
  TensorView staged_view(const Staged& staged) const;
  std::string name_of(int tensor) const;

  std::shared_ptr<GpuState> state_;
  std::string name_;
  std::vector<KernelTensor> tensors_;
  Lowering lowering_;
  std::vector<std::unique_ptr<Variant>> variants_;
  std::vector<std::unique_ptr<Binding>> bindings_;
  size_t last_ = 0;       // the binding of the last run
  DeviceMemory scratch_;  // for the staged copies
  DeviceMemory tile_counter_;
  BackendMemory shared_;  // scratch between launches
  size_t shared_bytes_ = 0;
};

}  // namespace coda::gpu
