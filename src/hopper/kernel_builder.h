// SPDX-License-Identifier: Apache-2.0
// A compiler behind a cache: from the text of a kernel to its cubin, with no GPU.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "hopper/cubin_cache.h"
#include "hopper/nvrtc_compiler.h"

namespace coda::hopper {

class KernelBuilder {
 public:
  explicit KernelBuilder(CacheOptions options = {}) : cache_(std::move(options)) {}

  // Throws Error, naming the program, if there is no compiler, and InternalError with the
  // compiler's log if the text does not compile. May be called by several threads at once.
  CompiledKernel build(const std::string& program, const std::string& source);

  CubinCache& cache() { return cache_; }
  const NvrtcCompiler& compiler();  // throws Error if there is none

 private:
  CubinCache cache_;
  std::mutex mutex_;
  std::unique_ptr<NvrtcCompiler> compiler_;
};

}  // namespace coda::hopper
