// SPDX-License-Identifier: Apache-2.0
// Tensors in a GPU's memory, and streams: what a program that runs plans on a GPU holds. CUDA is
// opened when the first of them is made; Error says what is missing. Work on a stream is done in
// order; nothing here waits for the GPU unless it says so.
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

// Why there is no GPU that kernels can run on; empty: there is one.
std::string why_no_gpu();
// Those that this process may use, of any kind; 0 where there is no driver.
int count_gpus();
// "NVIDIA H200, driver for CUDA 13.0". Throws Error if there is none.
std::string describe_gpu();
// Operations a second of dense bf16 products at the peak, by NVIDIA's data sheets, of a GPU whose
// description has this name: the SXM modules of H100 and H200 where it says nothing else.
double peak_flops(std::string_view gpu);

class Stream {
 public:
  // A new stream, of the device of the thread's current CUDA context, else of device 0.
  static Stream make();
  // A stream of somebody else (a cudaStream_t or CUstream; null: the default stream), who keeps it.
  static Stream of(void* handle);

  void* handle() const { return handle_.get(); }
  // Waits until all work on it is done. Throws Error if a kernel has failed.
  void synchronize() const;

 private:
  Stream() = default;

  std::shared_ptr<const gpu::Context> context_;
  std::shared_ptr<void> handle_;
};

// A dense matrix in device memory, not initialised, whose copies do not wait: for programs that
// order their own streams. (A Tensor of coda/tensor.h is simpler: its copies are done when they
// return.) Its address is a multiple of 256 bytes.
class DeviceTensor {
 public:
  DeviceTensor() = default;
  // Valid on `stream` at once, on others when they have waited for it. Throws Error if memory is
  // exhausted.
  DeviceTensor(DType dtype, int64_t rows, int64_t cols, const Stream& stream);

  // What sessions bind; the address is the device's.
  TensorView view() const;

  // `host` has the same type and size, and must stay as it is until the stream is done.
  void upload(const TensorView& host, const Stream& stream);
  // Waits until the copy is there.
  void download(const TensorView& host, const Stream& stream) const;
  void fill_bytes(unsigned char value, const Stream& stream);

 private:
  std::shared_ptr<gpu::DeviceMemory> memory_;
  DType dtype_ = DType::f32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
};

// Of a tensor in the GPU's memory that is no DeviceTensor, such as a session's own result. Waits
// until the copy is there.
void download(const TensorView& device, const TensorView& host, const Stream& stream);

}  // namespace CODA_API coda
