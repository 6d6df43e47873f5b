// SPDX-License-Identifier: Apache-2.0
// Uses the recorded compiler version for cache keys, and opens the compiler only on a miss.
#include "gpu/jit/kernel_builder.h"

#include "coda/error.h"
#include "gpu/jit/compiler_record.h"

namespace coda::gpu {

std::string KernelBuilder::key_of(CompilerVersion version, const std::string& source) const {
  return cache_key(version, *target_, headers_digest_, source);
}

const NvrtcCompiler& KernelBuilder::open() {
  if (compiler_ == nullptr) {
    compiler_ = std::make_unique<NvrtcCompiler>(*target_);
    const CompilerVersion version = compiler_->version();
    record_compiler(cache_.folder(), compiler_->file(), version);
    if (version < target_->compiler) {
      cache_.notice("compiler",
                    "NVRTC " + version.text() + " does not know " +
                        std::string(target_->architecture) +
                        ": the driver compiles the kernels, which takes longer and may spill "
                        "registers unnoticed. Remedy: install NVRTC " +
                        target_->compiler.text() + " (`pip install -U nvidia-cuda-nvrtc`)");
    }
  }
  return *compiler_;
}

const NvrtcCompiler& KernelBuilder::compiler() {
  const std::lock_guard lock(mutex_);
  return open();
}

std::optional<CompilerVersion> KernelBuilder::known_version() {
  if (compiler_ != nullptr) return compiler_->version();
  if (!recorded_) recorded_ = recorded_compiler(cache_.folder());
  return recorded_;
}

CompilerVersion KernelBuilder::version() {
  const std::lock_guard lock(mutex_);
  const std::optional<CompilerVersion> known = known_version();
  return known ? *known : open().version();
}

CompiledKernel KernelBuilder::build(const std::string& program, const std::string& source) {
  try {
    CompiledKernel kernel;
    if (auto found = cache_.find(key_of(version(), source))) {
      kernel = *std::move(found);
    } else {
      // The compiler may differ from the recorded one.
      const NvrtcCompiler& nvrtc = compiler();
      kernel = cache_.get(key_of(nvrtc.version(), source), [&] { return nvrtc.compile(source); });
      if (kernel.cubin.empty()) {
        throw InternalError("the kernel of program '" + program + "' does not compile with NVRTC " +
                            nvrtc.version().text() + ":\n" + kernel.log);
      }
    }
    if (!kernel.defect.empty()) {
      const std::lock_guard lock(mutex_);
      spilled_[source] = kernel.spilled_bytes();
    }
    return kernel;
  } catch (const Error& error) {
    throw Error("compiling program '" + program + "': " + error.what());
  }
}

int64_t KernelBuilder::spilled_bytes(const std::string& source) const {
  const std::lock_guard lock(mutex_);
  const auto found = spilled_.find(source);
  return found == spilled_.end() ? 0 : found->second;
}

std::optional<int64_t> KernelBuilder::cached_spilled_bytes(const std::string& source) {
  std::optional<CompilerVersion> version;
  {
    const std::lock_guard lock(mutex_);
    version = known_version();
  }
  if (!version) return std::nullopt;
  const auto found = cache_.find(key_of(*version, source));
  if (!found) return std::nullopt;
  return found->spilled_bytes();
}

}  // namespace coda::gpu
