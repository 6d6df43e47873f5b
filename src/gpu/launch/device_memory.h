// SPDX-License-Identifier: Apache-2.0
// Owned GPU memory, and copies. Memory comes from the device's stream-ordered pool, so that neither
// allocating nor freeing waits for the GPU; devices without a pool use plain allocations.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "coda/tensor.h"
#include "gpu/launch/context.h"

namespace coda::gpu {

enum class Allocation : uint8_t {
  stream_ordered,  // usable on its stream at once, on others after they waited for it
  plain,           // usable on every stream at once
};

class DeviceMemory {
 public:
  DeviceMemory() = default;
  // `what` names the memory in errors: "the saved tensors". Size 0 allocates nothing.
  DeviceMemory(std::shared_ptr<const Context> context, size_t bytes, DriverHandle stream,
               const std::string& what, Allocation allocation = Allocation::stream_ordered);
  ~DeviceMemory() { free(); }
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }

  DeviceAddress address() const { return address_; }  // a multiple of 256
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what tensors carry as their data
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory& other) noexcept;
  void free() noexcept;

  std::shared_ptr<const Context> context_;
  DeviceAddress address_ = 0;
  size_t bytes_ = 0;
  DriverHandle stream_ = nullptr;
  bool is_pooled_ = false;
};

// Pinned host memory, which copy engines access directly, so that copies are asynchronous. Throws
// Error.
std::shared_ptr<std::byte> pinned_memory(std::shared_ptr<const Context> context, size_t bytes,
                                         const std::string& what);

inline DeviceAddress address_of(const void* data) { return reinterpret_cast<DeviceAddress>(data); }

// Copies between matrices of the same size and type, in stream order. The host memory must not
// change until the copy has run.
void copy_to_device(const TensorView& host, const TensorView& device, DriverHandle stream);
void copy_to_host(const TensorView& device, const TensorView& host, DriverHandle stream);
void copy_on_device(const TensorView& from, const TensorView& to, DriverHandle stream);
// Sets every byte of the matrix but not of the gaps between its rows.
void fill_bytes(const TensorView& view, unsigned char value, DriverHandle stream);

}  // namespace coda::gpu
