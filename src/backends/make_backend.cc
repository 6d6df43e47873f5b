// SPDX-License-Identifier: Apache-2.0
// The one place that knows which backends exist.
#include <string>

#include "coda/backend.h"
#include "coda/device.h"
#include "coda/error.h"
#include "cpu/cpu_backend.h"
#include "gpu/gpu_backend.h"
#include "gpu/launch/context.h"
#include "runtime/reference_backend.h"

namespace coda {
namespace {

bool has_gpu(int device) {
  if (device < 0) return why_no_gpu().empty();
  try {  // of the others no context is made
    gpu::check_architecture(gpu::Context(device).info());
    return true;
  } catch (const Error&) {
    return why_no_gpu().empty();  // then the number is wrong, and an error says so
  }
}

}  // namespace

std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options) {
  if (name == "best") return make_backend(has_gpu(options.device) ? "gpu" : "cpu", options);
  if (name == "cpu") return cpu::make_cpu_backend({.threads = options.threads});
  if (name == "reference") return std::make_unique<ReferenceBackend>();
  if (name == "gpu") {
    gpu::GpuOptions gpu_options;
    gpu_options.device = options.device;
    gpu_options.attention = options.attention;
    gpu_options.takes_compiled = options.takes_compiled;
    return gpu::make_gpu_backend(gpu_options);
  }
  throw Error("there is no backend named '" + std::string(name) +
              "': choose \"cpu\", \"gpu\", \"best\" or \"reference\"");
}

}  // namespace coda
