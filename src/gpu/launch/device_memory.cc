// SPDX-License-Identifier: Apache-2.0
// Memory from the pool is freed in stream order, so that freeing does not wait for the GPU.
#include "gpu/launch/device_memory.h"

#include <utility>

#include "coda/error.h"

namespace coda::gpu {
namespace {

size_t width_bytes(const TensorView& view) {
  return static_cast<size_t>(view.cols * size_of(view.dtype));
}
size_t pitch_bytes(const TensorView& view) {
  return view.rows == 1 ? width_bytes(view)
                        : static_cast<size_t>(view.row_stride * size_of(view.dtype));
}

std::string view_text(const TensorView& view) {
  return std::string(name_of(view.dtype)) + " [" + std::to_string(view.rows) + ", " +
         std::to_string(view.cols) + "]";
}

void check_alike(const TensorView& from, const TensorView& to) {
  require(from.rows == to.rows && from.cols == to.cols && from.dtype == to.dtype,
          "cannot copy " + view_text(from) + " to " + view_text(to) + ": they must be alike");
}

}  // namespace

DeviceMemory::DeviceMemory(std::shared_ptr<const Context> context, size_t bytes,
                           DriverHandle stream, const std::string& what, Allocation allocation)
    : context_(std::move(context)), bytes_(bytes), stream_(stream) {
  if (bytes == 0) return;
  const Context::Scope scope(*context_);
  is_pooled_ = allocation == Allocation::stream_ordered && context_->info().has_pools;
  const int result = is_pooled_ ? driver().mem_alloc_async(&address_, bytes, stream)
                                : driver().mem_alloc(&address_, bytes);
  if (result == 0) return;
  std::string message = "allocating " + std::to_string(bytes) + " bytes for " + what;
  size_t free = 0;
  size_t total = 0;
  if (result == cuda::kOutOfMemory && driver().mem_get_info(&free, &total) == 0) {
    message += ", where GPU " + std::to_string(context_->info().ordinal) + " has " +
               std::to_string(free) + " of " + std::to_string(total) + " bytes free";
  }
  address_ = 0;
  check_driver(result, message);
}

void DeviceMemory::swap(DeviceMemory& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  std::swap(stream_, other.stream_);
  std::swap(is_pooled_, other.is_pooled_);
}

// Ignores errors: if freeing fails, the context and its memory are already gone.
void DeviceMemory::free() noexcept {
  if (address_ == 0) return;
  try {
    const Context::Scope scope(*context_);
    // If the stream no longer exists, it cannot order the free; the driver waits instead.
    if (!is_pooled_ || driver().mem_free_async(address_, stream_) != 0) driver().mem_free(address_);
  } catch (const Error&) {
  }
  address_ = 0;
}

std::shared_ptr<std::byte> pinned_memory(std::shared_ptr<const Context> context, size_t bytes,
                                         const std::string& what) {
  constexpr unsigned kOfAllContexts = 1;
  const Context::Scope scope(*context);
  void* memory = nullptr;
  check_driver(driver().mem_host_alloc(&memory, bytes, kOfAllContexts),
               "allocating " + std::to_string(bytes) + " bytes of pinned memory for " + what);
  return {static_cast<std::byte*>(memory), [context = std::move(context)](std::byte* owned) {
            try {
              const Context::Scope freeing(*context);
              driver().mem_free_host(owned);
            } catch (const Error&) {  // the context and the memory are already gone
            }
          }};
}

void copy_to_device(const TensorView& host, const TensorView& device, DriverHandle stream) {
  check_alike(host, device);
  const bool dense = host.is_contiguous() && device.is_contiguous();
  const int result =
      dense ? driver().memcpy_htod_async(address_of(device.data), host.data,
                                         width_bytes(host) * static_cast<size_t>(host.rows), stream)
            : [&] {
                cuda::Copy2D copy;
                copy.source_type = 1;
                copy.source_host = host.data;
                copy.source_pitch = pitch_bytes(host);
                copy.target = address_of(device.data);
                copy.target_pitch = pitch_bytes(device);
                copy.width_bytes = width_bytes(host);
                copy.height = static_cast<size_t>(host.rows);
                return driver().memcpy_2d_async(&copy, stream);
              }();
  check_driver(result, "copying a tensor to the GPU, ", view_text(device));
}

void copy_to_host(const TensorView& device, const TensorView& host, DriverHandle stream) {
  check_alike(device, host);
  const bool dense = host.is_contiguous() && device.is_contiguous();
  const int result =
      dense ? driver().memcpy_dtoh_async(host.data, address_of(device.data),
                                         width_bytes(host) * static_cast<size_t>(host.rows), stream)
            : [&] {
                cuda::Copy2D copy;
                copy.source = address_of(device.data);
                copy.source_pitch = pitch_bytes(device);
                copy.target_type = 1;
                copy.target_host = host.data;
                copy.target_pitch = pitch_bytes(host);
                copy.width_bytes = width_bytes(host);
                copy.height = static_cast<size_t>(host.rows);
                return driver().memcpy_2d_async(&copy, stream);
              }();
  check_driver(result, "copying a tensor from the GPU, ", view_text(device));
}

void copy_on_device(const TensorView& from, const TensorView& to, DriverHandle stream) {
  check_alike(from, to);
  cuda::Copy2D copy;
  copy.source = address_of(from.data);
  copy.source_pitch = pitch_bytes(from);
  copy.target = address_of(to.data);
  copy.target_pitch = pitch_bytes(to);
  copy.width_bytes = width_bytes(from);
  copy.height = static_cast<size_t>(from.rows);
  check_driver(driver().memcpy_2d_async(&copy, stream), "copying a tensor on the GPU, ",
               view_text(from));
}

void fill_bytes(const TensorView& view, unsigned char value, DriverHandle stream) {
  if (view.size() == 0) return;
  const int result =
      view.is_contiguous()
          ? driver().memset_d8_async(address_of(view.data), value,
                                     width_bytes(view) * static_cast<size_t>(view.rows), stream)
          : driver().memset_d2d8_async(address_of(view.data), pitch_bytes(view), value,
                                       width_bytes(view), static_cast<size_t>(view.rows), stream);
  check_driver(result, "filling a tensor of the GPU, ", view_text(view));
}

}  // namespace coda::gpu
