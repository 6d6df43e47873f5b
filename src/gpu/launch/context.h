// SPDX-License-Identifier: Apache-2.0
// Retains a GPU's primary context, which the CUDA runtime also uses. So memory and streams can be
// exchanged with PyTorch in the same process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gpu/launch/driver_api.h"
#include "gpu/targets/targets.h"

namespace coda::gpu {

struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  int major = 0;  // of the compute capability
  int minor = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;    // shared memory that a block may use
  bool has_pools = false;  // stream-ordered allocation
};

class Context {
 public:
  // device -1: that of the calling thread's context, else 0. Throws Error.
  explicit Context(int device = -1);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const DeviceInfo& info() const { return info_; }
  DriverHandle handle() const { return handle_; }

  // Makes the context current in the calling thread while the Scope lives.
  class Scope {
   public:
    explicit Scope(const Context& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    bool is_pushed_ = false;
  };

 private:
  DeviceInfo info_;
  DriverHandle handle_ = nullptr;
};

// The target of that name (targets/targets.h) for this device. Throws Error if the device does not
// run its kernels.
const Target& target_of(const DeviceInfo& info, std::string_view name = {});

}  // namespace coda::gpu
