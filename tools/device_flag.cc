// SPDX-License-Identifier: Apache-2.0
#include "device_flag.h"

namespace coda::tools {

void add_device_flag(CLI::App& command, std::string& device) {
  command
      .add_option("--device", device, "cpu, gpu, or auto: the GPU where there is one, else the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "gpu"}))
      ->capture_default_str();
}

std::unique_ptr<Backend> backend_of(const std::string& device) {
  return make_backend(device == "cpu" ? "cpu" : device == "gpu" ? "hopper" : "best");
}

}  // namespace coda::tools
