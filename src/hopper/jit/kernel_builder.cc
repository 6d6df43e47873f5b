// SPDX-License-Identifier: Apache-2.0
#include "hopper/jit/kernel_builder.h"

#include "coda/error.h"
#include "hopper/jit/compiler_record.h"

namespace coda::hopper {

const NvrtcCompiler& KernelBuilder::open() {
  if (compiler_ == nullptr) {
    compiler_ = std::make_unique<NvrtcCompiler>();
    record_compiler(cache_.folder(), compiler_->file(), compiler_->version());
  }
  return *compiler_;
}

const NvrtcCompiler& KernelBuilder::compiler() {
  const std::lock_guard lock(mutex_);
  return open();
}

CompilerVersion KernelBuilder::version() {
  const std::lock_guard lock(mutex_);
  if (compiler_ != nullptr) return compiler_->version();
  if (!recorded_) recorded_ = recorded_compiler(cache_.folder());
  return recorded_ ? *recorded_ : open().version();
}

CompiledKernel KernelBuilder::build(const std::string& program, const std::string& source) {
  static const std::string headers = digest_of(embedded_headers());
  try {
    if (auto found = cache_.find(cache_key(version(), headers, source))) return *std::move(found);
    // The compiler may be another than the recorded one.
    const NvrtcCompiler& nvrtc = compiler();
    CompiledKernel kernel = cache_.get(cache_key(nvrtc.version(), headers, source),
                                       [&] { return nvrtc.compile(source); });
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
