// SPDX-License-Identifier: Apache-2.0
// A compiler behind a cache: from the text of a kernel to its cubin, with no GPU. The compiler is
// opened when the first kernel is not in the cache. What it says of a kernel is kept too, so one
// that spills is compiled once: then its program is made with another configuration.
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
  // compiler's log if the text does not compile. May be called by several threads at once.
  CompiledKernel build(const std::string& program, const std::string& source);

  // CompiledKernel::spilled_bytes() of a text that was built here; 0 of any other.
  int64_t spilled_bytes(const std::string& source) const;
  // The same of a text that is in the cache. Opens no compiler.
  int64_t kept_spilled_bytes(const std::string& source);

  CubinCache& cache() { return cache_; }
  // Opens the compiler. Throws Error if there is none.
  const NvrtcCompiler& compiler();
  // Its version, without opening it if the cache knows which one this environment has.
  CompilerVersion version();

 private:
  const NvrtcCompiler& open();                     // mutex_ is held
  std::optional<CompilerVersion> known_version();  // likewise

  std::string key_of(CompilerVersion version, const std::string& source) const;

  const Target* target_;
  std::string headers_digest_;
  CubinCache cache_;
  mutable std::mutex mutex_;  // of what follows
  std::unique_ptr<NvrtcCompiler> compiler_;
  std::optional<CompilerVersion> recorded_;
  std::map<std::string, int64_t> spilled_;  // by text
};

}  // namespace coda::gpu
