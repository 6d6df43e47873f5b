// SPDX-License-Identifier: Apache-2.0
// A GPU's primary context, retained: the one that the CUDA runtime uses too, so memory and streams
// of PyTorch in the same process are valid here and the other way round.
#pragma once

#include <memory>
#include <string>

#include "gpu/launch/driver_api.h"

namespace coda::gpu {

struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  int major = 0;  // of the compute capability
  int minor = 0;
  int multiprocessors = 0;
  bool has_pools = false;  // stream-ordered allocation
};

class Context {
 public:
  // device -1: that of the calling thread's context, if it has one, else 0. Throws Error.
  explicit Context(int device = -1);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const DeviceInfo& info() const { return info_; }
  DriverHandle handle() const { return handle_; }

  // The context is the calling thread's while this lives.
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

// Throws Error unless the kernels of chosen_target() run on the device.
void check_architecture(const DeviceInfo& info);

}  // namespace coda::gpu
