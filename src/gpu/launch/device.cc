// SPDX-License-Identifier: Apache-2.0
// Implements coda/device.h with the parts of the GPU backend.
#include "coda/device.h"

#include <mutex>
#include <string>

#include "coda/error.h"
#include "coda/gpu_card.h"
#include "gpu/launch/context.h"
#include "gpu/launch/device_memory.h"

namespace coda {
namespace {

// One context for all tensors and streams of a device; it lives as long as any of them.
std::shared_ptr<const gpu::Context> shared_context() {
  static std::mutex mutex;
  static std::weak_ptr<const gpu::Context> latest;
  const std::lock_guard lock(mutex);
  auto wanted = std::make_shared<const gpu::Context>();
  if (auto known = latest.lock(); known != nullptr && known->handle() == wanted->handle())
    return known;
  latest = wanted;
  return wanted;
}

}  // namespace

std::string why_no_gpu() {
  try {
    gpu::target_of(gpu::Context().info());
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

int count_gpus() {
  int count = 0;
  try {
    return gpu::driver().device_get_count(&count) == 0 ? count : 0;
  } catch (const Error&) {
    return 0;
  }
}

std::string describe_gpu() {
  const gpu::Context context;
  return context.info().name + ", driver for CUDA " + gpu::cuda_version_text(gpu::driver().version);
}

double peak_flops(std::string_view gpu) {
  const GpuCard* card = find_gpu_card(gpu);
  return card == nullptr ? 0 : card->flops;
}

Stream Stream::make() {
  Stream stream;
  stream.context_ = shared_context();
  const gpu::Context::Scope scope(*stream.context_);
  gpu::DriverHandle handle = nullptr;
  gpu::check_driver(gpu::driver().stream_create(&handle, gpu::cuda::kNonBlocking),
                    "making a stream");
  const auto destroy = [context = stream.context_](void* owned) {
    try {
      const gpu::Context::Scope destroying(*context);
      gpu::driver().stream_destroy(owned);
    } catch (const Error&) {  // the context and its streams are already gone
    }
  };
  stream.handle_ = std::shared_ptr<void>(handle, destroy);
  return stream;
}

Stream Stream::of(void* handle) {
  Stream stream;
  stream.context_ = shared_context();
  stream.handle_ = std::shared_ptr<void>(handle, [](void*) {});
  return stream;
}

void Stream::synchronize() const {
  const gpu::Context::Scope scope(*context_);
  gpu::check_driver(gpu::driver().stream_synchronize(handle_.get()), "waiting for a stream");
}

DeviceTensor::DeviceTensor(DType dtype, int64_t rows, int64_t cols, const Stream& stream)
    : dtype_(dtype), rows_(rows), cols_(cols) {
  require(rows > 0 && cols > 0, "a tensor of " + std::to_string(rows) + " rows and " +
                                    std::to_string(cols) + " columns: both must be positive");
  memory_ = std::make_shared<gpu::DeviceMemory>(
      shared_context(), static_cast<size_t>(rows * cols * size_of(dtype)), stream.handle(),
      "a tensor " + std::string(name_of(dtype)) + " [" + std::to_string(rows) + ", " +
          std::to_string(cols) + "]");
}

TensorView DeviceTensor::view() const {
  return dense_view(memory_ == nullptr ? nullptr : memory_->data(), dtype_, rows_, cols_);
}

void DeviceTensor::upload(const TensorView& host, const Stream& stream) {
  const gpu::Context::Scope scope(*shared_context());
  gpu::copy_to_device(host, view(), stream.handle());
}

void DeviceTensor::download(const TensorView& host, const Stream& stream) const {
  coda::download(view(), host, stream);
}

void download(const TensorView& device, const TensorView& host, const Stream& stream) {
  const gpu::Context::Scope scope(*shared_context());
  gpu::copy_to_host(device, host, stream.handle());
  stream.synchronize();
}

void DeviceTensor::fill_bytes(unsigned char value, const Stream& stream) {
  const gpu::Context::Scope scope(*shared_context());
  gpu::fill_bytes(view(), value, stream.handle());
}

}  // namespace coda
