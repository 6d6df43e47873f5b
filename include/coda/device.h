// SPDX-License-Identifier: Apache-2.0
// Tensors in GPU memory, and streams, for programs that run plans on a GPU. The CUDA libraries are
// loaded when the first of these objects is made; Error says what is missing. Work on one stream
// runs in order. No function here waits for the GPU unless its comment says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "coda/api.h"
#include "coda/tensor.h"

namespace coda::gpu {
class Context;
class DeviceMemory;
}  // namespace coda::gpu

namespace CODA_API coda {

// Why no usable GPU was found; empty if there is one.
std::string why_no_gpu();
// The number of GPUs that this process may use, of any kind; 0 without a driver.
int count_gpus();
// For example "NVIDIA H200, driver for CUDA 13.0". Throws Error if there is no GPU.
std::string describe_gpu();
// Peak dense bf16 operations per second by NVIDIA's data sheets, for a GPU whose description
// contains this name; 0 for a GPU that is not known. H100 and H200 mean the SXM modules unless the
// name says otherwise.
double peak_flops(std::string_view gpu);

class Stream {
 public:
  // A new stream on the device of the thread's current CUDA context, else on device 0.
  static Stream make();
  // Wraps an existing stream (a cudaStream_t or CUstream; null: the default stream). The caller
  // keeps ownership.
  static Stream of(void* handle);

  void* handle() const { return handle_.get(); }
  // Waits until all work on it is done. Throws Error if a kernel has failed.
  void synchronize() const;

 private:
  Stream() = default;

  std::shared_ptr<const gpu::Context> context_;
  std::shared_ptr<void> handle_;
};

// An uninitialised dense matrix in device memory with asynchronous copies, for programs that order
// their own streams. (The copies of a Tensor, coda/tensor.h, are complete when they return, which
// is simpler.) The address is a multiple of 256 bytes.
class DeviceTensor {
 public:
  DeviceTensor() = default;
  // Usable on `stream` at once, on other streams after they have waited for `stream`. Throws Error
  // if memory is exhausted.
  DeviceTensor(DType dtype, int64_t rows, int64_t cols, const Stream& stream);

  // The view that sessions bind; its address is a device address.
  TensorView view() const;

  // `host` must have the same type and size, and must not change until the copy has run.
  void upload(const TensorView& host, const Stream& stream);
  // Waits until the copy is complete.
  void download(const TensorView& host, const Stream& stream) const;
  void fill_bytes(unsigned char value, const Stream& stream);

 private:
  std::shared_ptr<gpu::DeviceMemory> memory_;
  DType dtype_ = DType::f32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
};

// Copies a tensor in GPU memory that is not a DeviceTensor, such as a session's result. Waits until
// the copy is complete.
void download(const TensorView& device, const TensorView& host, const Stream& stream);

}  // namespace CODA_API coda
