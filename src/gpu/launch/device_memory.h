// SPDX-License-Identifier: Apache-2.0
// Memory of the GPU with an owner, and its copies. It comes from the device's pool in the order of
// a stream, so that neither allocating nor freeing waits for the GPU; where there is no pool, it is
// allocated plainly.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "coda/tensor.h"
#include "gpu/launch/context.h"

namespace coda::gpu {

enum class Allocation : uint8_t {
  stream_ordered,  // valid on its stream at once, on others when they have waited for it
  plain,           // valid on every stream at once
};

class DeviceMemory {
 public:
  DeviceMemory() = default;
  // `what` names it in errors: "the saved tensors". No bytes: no memory.
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

// Memory of the host that the copy engines reach, so that copies do not wait. Throws Error.
std::shared_ptr<std::byte> pinned_memory(std::shared_ptr<const Context> context, size_t bytes,
                                         const std::string& what);

inline DeviceAddress address_of(const void* data) { return reinterpret_cast<DeviceAddress>(data); }

// Copies of matrices of the same size and type, in the order of the stream. The host's memory must
// stay as it is until the stream is done.
void copy_to_device(const TensorView& host, const TensorView& device, DriverHandle stream);
void copy_to_host(const TensorView& device, const TensorView& host, DriverHandle stream);
void copy_on_device(const TensorView& from, const TensorView& to, DriverHandle stream);
// Every byte of the matrix, not of the gaps between its rows.
void fill_bytes(const TensorView& view, unsigned char value, DriverHandle stream);

}  // namespace coda::gpu
