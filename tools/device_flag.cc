// SPDX-License-Identifier: Apache-2.0
// Maps names of devices, targets and attention kernels to BackendOptions.
#include "device_flag.h"

namespace coda::tools {

void add_target(CLI::App& command, std::string& target) {
  command.add_option("--target", target,
                     "Kernels of a GPU: sm90 (H100, H200), sm80 (any since Ampere), sm89 (sm80 "
                     "with 8-bit floats), or those of one architecture, sm_120 [CODA_GPU_TARGET, "
                     "else the GPU's own, else sm90]");
}

void CardFlag::add_to(CLI::App& command, const std::string& what) {
  command.add_option("--gpu", name, what)->type_name("NAME");
}

KernelOptions CardFlag::kernels(const std::string& target) const {
  KernelOptions options = card() == nullptr ? KernelOptions{} : kernel_options(*card());
  options.target = target;
  return options;
}

void DeviceFlags::add_to(CLI::App& command) {
  command
      .add_option("--device", device, "cpu, gpu, or auto: the GPU where there is one, else the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "gpu"}))
      ->capture_default_str();
  command
      .add_option(
          "--attention", attention,
          "On a GPU, where cuDNN is faster than coda's own kernels (not on Hopper with heads "
          "of 64, 96 or 128): repeatable (cuDNN, the same bits each time), fast (cuDNN in any "
          "order), or plain (never cuDNN)")
      ->check(CLI::IsMember({"repeatable", "fast", "plain"}))
      ->capture_default_str();
  add_target(command, target);
}

std::unique_ptr<Backend> DeviceFlags::backend(int number) const {
  const GpuAttention chosen = attention == "fast"    ? GpuAttention::fast
                              : attention == "plain" ? GpuAttention::plain
                                                     : GpuAttention::repeatable;
  return make_backend(device == "cpu" || device == "gpu" ? device : "best",
                      {.device = number, .target = target, .attention = chosen});
}

}  // namespace coda::tools
