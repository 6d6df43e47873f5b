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

bool has_gpu(const BackendOptions& options) {
  try {
    gpu::target_of(gpu::Context(options.device).info(), options.target);
    return true;
  } catch (const Error&) {
    // If another GPU is usable, the number or the target is wrong, and an error says so.
    return options.device >= 0 && why_no_gpu().empty();
  }
}

}  // namespace

std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options) {
  if (name == "best") return make_backend(has_gpu(options) ? "gpu" : "cpu", options);
  if (name == "cpu") return cpu::make_cpu_backend({.threads = options.threads});
  if (name == "reference") return std::make_unique<ReferenceBackend>();
  if (name == "gpu") {
    gpu::GpuOptions gpu_options;
    gpu_options.device = options.device;
    gpu_options.target = options.target;
    gpu_options.attention = options.attention;
    gpu_options.takes_compiled = options.takes_compiled;
    return gpu::make_gpu_backend(gpu_options);
  }
  throw Error("there is no backend named '" + std::string(name) +
              "': choose \"cpu\", \"gpu\", \"best\" or \"reference\"");
}

}  // namespace coda
