// SPDX-License-Identifier: Apache-2.0
// The one place that knows which backends exist.
#include <string>

#include "coda/backend.h"
#include "coda/device.h"
#include "coda/error.h"
#include "cpu/cpu_backend.h"
#include "hopper/hopper_backend.h"
#include "runtime/reference_backend.h"

namespace coda {

std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options) {
  if (name == "best") return make_backend(why_no_gpu().empty() ? "hopper" : "cpu", options);
  if (name == "cpu") return cpu::make_cpu_backend({.threads = options.threads});
  if (name == "reference") return std::make_unique<ReferenceBackend>();
  if (name == "hopper") {
    hopper::HopperOptions hopper;
    hopper.device = options.device;
    hopper.attention = options.attention;
    return hopper::make_hopper_backend(hopper);
  }
  throw Error("there is no backend named '" + std::string(name) +
              "': choose \"cpu\", \"hopper\", \"best\" or \"reference\"");
}

}  // namespace coda
