// SPDX-License-Identifier: Apache-2.0
// Maps names of devices and attention kernels to BackendOptions.
#include "device_flag.h"

namespace coda::tools {

void DeviceFlags::add_to(CLI::App& command) {
  command
      .add_option("--device", device, "cpu, gpu, or auto: the GPU where there is one, else the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "gpu"}))
      ->capture_default_str();
  command
      .add_option("--attention", attention,
                  "On a GPU: repeatable (cuDNN, the same bits each time), fast (cuDNN in any "
                  "order), or plain (without cuDNN, slow)")
      ->check(CLI::IsMember({"repeatable", "fast", "plain"}))
      ->capture_default_str();
}

std::unique_ptr<Backend> DeviceFlags::backend(int number) const {
  const GpuAttention chosen = attention == "fast"    ? GpuAttention::fast
                              : attention == "plain" ? GpuAttention::plain
                                                     : GpuAttention::repeatable;
  return make_backend(device == "cpu" || device == "gpu" ? device : "best",
                      {.device = number, .attention = chosen});
}

}  // namespace coda::tools
