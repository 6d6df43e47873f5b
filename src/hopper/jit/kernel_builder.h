// SPDX-License-Identifier: Apache-2.0
// A compiler behind a cache: from the text of a kernel to its cubin, with no GPU. The compiler is
// opened when the first kernel is not in the cache.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "hopper/jit/cubin_cache.h"
#include "hopper/jit/nvrtc_compiler.h"

namespace coda::hopper {

class KernelBuilder {
 public:
  explicit KernelBuilder(CacheOptions options = {}) : cache_(std::move(options)) {}

  // Throws Error, naming the program, if there is no compiler, and InternalError with the
  // compiler's log if the text does not compile. May be called by several threads at once.
  CompiledKernel build(const std::string& program, const std::string& source);

  CubinCache& cache() { return cache_; }
  // Opens the compiler. Throws Error if there is none.
  const NvrtcCompiler& compiler();
  // Its version, without opening it if the cache knows which one this environment has.
  CompilerVersion version();

 private:
  const NvrtcCompiler& open();  // mutex_ is held

  CubinCache cache_;
  std::mutex mutex_;  // of what follows
  std::unique_ptr<NvrtcCompiler> compiler_;
  std::optional<CompilerVersion> recorded_;
};

}  // namespace coda::hopper
