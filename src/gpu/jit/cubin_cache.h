// SPDX-License-Identifier: Apache-2.0
// Compiled kernels on disk, by what they were compiled from: text, device code, options, compiler
// version and architecture, so that a stale entry cannot be met. Processes share the folder: a
// kernel is compiled by one of them while the others wait, and an entry appears whole or not at
// all.
// Only entries that belong to the user (or to root) and that no one else may write are loaded.
// Invariant: the cache never fails a compilation. A folder that cannot be used costs one notice.
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

// CODA_CACHE_DIR, else XDG_CACHE_HOME/coda, else ~/.cache/coda; empty if no variable says where.
std::filesystem::path default_cache_folder();

struct CacheOptions {
  std::filesystem::path folder = default_cache_folder();
  // Entries that were used longest ago are removed above this.
  int64_t limit_bytes = int64_t{1} << 30;
  // Is told, once each, what is wrong with the folder or with an entry; empty: stderr.
  std::function<void(const std::string&)> notice;
};

class CubinCache {
 public:
  explicit CubinCache(CacheOptions options = {});

  // The entry of `key`, or what `compile` gives, which is kept if it has a cubin. May be called by
  // several threads at once.
  CompiledKernel get(const std::string& key, const std::function<CompiledKernel()>& compile);

  // The entry, if there is one.
  std::optional<CompiledKernel> find(const std::string& key);

  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }
  // Where entries lie: cubins/ in the cache's folder.
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path path_of(const std::string& key) const;
  std::optional<CompiledKernel> load(const std::string& key);
  void store(const std::string& key, const CompiledKernel& kernel);
  void evict(const std::filesystem::path& newest);
  void notice(const std::string& kind, const std::string& text);

  CacheOptions options_;
  std::filesystem::path folder_;
  std::atomic<int64_t> hits_ = 0;
  std::atomic<int64_t> misses_ = 0;
  std::mutex mutex_;               // of what follows
  std::set<std::string> noticed_;  // kinds
  int64_t bytes_ = -1;             // of all entries; -1: not yet counted
};

// The name under which the cache stores the kernel that this compiler version makes from `source`
// for the target, with these options (default: NvrtcCompiler's) and with headers of this digest.
std::string cache_key(CompilerVersion version, const Target& target,
                      std::span<const std::string> options, const std::string& headers_digest,
                      const std::string& source);
std::string cache_key(CompilerVersion version, const Target& target,
                      const std::string& headers_digest, const std::string& source);
std::string cache_key(const NvrtcCompiler& compiler, const std::string& source);
std::string digest_of(const NvrtcCompiler::Headers& headers);

}  // namespace coda::gpu
