// SPDX-License-Identifier: Apache-2.0
// Says what the tests ran on, for the report of the run. Needs a GPU; skipped elsewhere.
#include <iostream>

#include "gpu/jit/nvrtc_compiler.h"
#include "gpu/launch/driver_api.h"
#include "on_gpu/on_gpu.h"

namespace coda::tests {
namespace {

using Device = OnGpu;

TEST_F(Device, IsNamed) {
  const std::string name = describe_gpu() + ", NVRTC " + gpu::NvrtcCompiler().version().text();
  std::cout << "device: " << name << "\n";
  RecordProperty("device", name);
  EXPECT_NE(name.find("driver for CUDA"), std::string::npos);
}

}  // namespace
}  // namespace coda::tests
