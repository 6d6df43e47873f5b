// SPDX-License-Identifier: Apache-2.0
// Compiles kernel text to a cubin through the cache; needs no GPU. The compiler is opened only when
// a kernel is not cached. Compiler reports are cached too, so a kernel that spills is compiled only
// once; its program then gets another configuration.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gpu/jit/cubin_cache.h"
#include "gpu/jit/nvrtc_compiler.h"

namespace coda::gpu {

class KernelBuilder {
 public:
  explicit KernelBuilder(CacheOptions options = {}, const Target& target = chosen_target())
      : target_(&target),
        headers_digest_(digest_of(embedded_headers(target))),
        cache_(std::move(options)) {}

  // Throws Error, naming the program, if there is no compiler, and InternalError with the
  // compiler's log if the text does not compile. Thread-safe.
  CompiledKernel build(const std::string& program, const std::string& source);

  // CompiledKernel::spilled_bytes() of a text that was built here; 0 for other texts.
  int64_t spilled_bytes(const std::string& source) const;
  // The same for a text in the cache; none if it is not there. Does not open the compiler.
  std::optional<int64_t> cached_spilled_bytes(const std::string& source);

  CubinCache& cache() { return cache_; }
  const Target& target() const { return *target_; }
  // Opens the compiler. Throws Error if there is none.
  const NvrtcCompiler& compiler();
  // The compiler's version. Does not open the compiler if the cache has a record of it.
  CompilerVersion version();

 private:
  const NvrtcCompiler& open();                     // requires mutex_
  std::optional<CompilerVersion> known_version();  // requires mutex_

  std::string key_of(CompilerVersion version, const std::string& source) const;

  const Target* target_;
  std::string headers_digest_;
  CubinCache cache_;
  mutable std::mutex mutex_;  // guards the members below
  std::unique_ptr<NvrtcCompiler> compiler_;
  std::optional<CompilerVersion> recorded_;
  std::map<std::string, int64_t> spilled_;  // by text
};

}  // namespace coda::gpu
