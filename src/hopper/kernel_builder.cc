// SPDX-License-Identifier: Apache-2.0
#include "hopper/kernel_builder.h"

#include "coda/error.h"

namespace coda::hopper {

const NvrtcCompiler& KernelBuilder::compiler() {
  const std::lock_guard lock(mutex_);
  if (compiler_ == nullptr) compiler_ = std::make_unique<NvrtcCompiler>();
  return *compiler_;
}

CompiledKernel KernelBuilder::build(const std::string& program, const std::string& source) {
  try {
    const NvrtcCompiler& nvrtc = compiler();
    CompiledKernel kernel =
        cache_.get(cache_key(nvrtc, source), [&] { return nvrtc.compile(source); });
    if (kernel.cubin.empty()) {
      throw InternalError("the kernel of program '" + program + "' does not compile with NVRTC " +
                          nvrtc.version().text() + ":\n" + kernel.log);
    }
    return kernel;
  } catch (const Error& error) {
    throw Error("compiling program '" + program + "': " + error.what());
  }
}

}  // namespace coda::hopper
