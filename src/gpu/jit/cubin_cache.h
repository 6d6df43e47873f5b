// SPDX-License-Identifier: Apache-2.0
// A disk cache of compiled kernels. The key covers source text, device code, options, compiler
// version and architecture, so entries are never stale. Processes share the folder: one of them
// compiles a kernel while the others wait, and entries appear atomically. Only entries that belong
// to the user or root and that nobody else can write are loaded.
// Invariant: the cache never makes a compilation fail. An unusable folder causes one notice.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "gpu/jit/nvrtc_compiler.h"

namespace coda::gpu {

// CODA_CACHE_DIR, else XDG_CACHE_HOME/coda, else ~/.cache/coda; empty if none of the variables is
// set.
std::filesystem::path default_cache_folder();

struct CacheOptions {
  std::filesystem::path folder = default_cache_folder();
  // Above this size, the least recently used entries are removed.
  int64_t limit_bytes = int64_t{1} << 30;
  // Receives each problem with the folder or an entry once; empty: prints to stderr.
  std::function<void(const std::string&)> notice;
};

class CubinCache {
 public:
  explicit CubinCache(CacheOptions options = {});

  // The cached entry of `key`, else the result of `compile`, which is cached if it has a cubin.
  // Thread-safe.
  CompiledKernel get(const std::string& key, const std::function<CompiledKernel()>& compile);

  // Reports the text, once for each kind (CacheOptions::notice). Thread-safe.
  void notice(const std::string& kind, const std::string& text);

  // The entry, if it exists.
  std::optional<CompiledKernel> find(const std::string& key);

  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }
  // The folder of the entries: cubins/ in the cache folder.
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path path_of(const std::string& key) const;
  std::optional<CompiledKernel> load(const std::string& key);
  void store(const std::string& key, const CompiledKernel& kernel);
  void evict(const std::filesystem::path& newest);
  CacheOptions options_;
  std::filesystem::path folder_;
  std::atomic<int64_t> hits_ = 0;
  std::atomic<int64_t> misses_ = 0;
  std::mutex mutex_;               // guards the members below
  std::set<std::string> noticed_;  // kinds of problems
  int64_t bytes_ = -1;             // total size of all entries; -1: not counted yet
};

// The cache key of a kernel that this compiler version makes from `source` for the target, with
// these options (default: NvrtcCompiler's) and with headers of this digest.
std::string cache_key(CompilerVersion version, const Target& target,
                      std::span<const std::string> options, const std::string& headers_digest,
                      const std::string& source);
std::string cache_key(CompilerVersion version, const Target& target,
                      const std::string& headers_digest, const std::string& source);
std::string cache_key(const NvrtcCompiler& compiler, const std::string& source);
std::string digest_of(const NvrtcCompiler::Headers& headers);

}  // namespace coda::gpu
