// SPDX-License-Identifier: Apache-2.0
// An entry is a file named by its key:
//     coda cubin 2\n  the SHA-256 of all that follows\n  the key\n
//     "registers, bytes of defect, log, cubin"\n
//     and then those bytes.
// An entry is loaded only if it belongs to the user (own_file.h) and contains the key of its name,
// so that nobody else can put another kernel in its place. Entries appear by an atomic rename. A
// file's time is that of its last use. A process that compiles holds a lock that is selected by the
// first digits of the key. There are few lock files and they are never removed, because removing a
// lock file is a race.
#include "gpu/jit/cubin_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <system_error>
#include <vector>

#include "base/atomic_file.h"
#include "base/file_error.h"
#include "base/own_file.h"
#include "base/sha256.h"
#include "coda/error.h"
#include "gpu/jit/dynamic_library.h"

namespace coda::gpu {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kCubinMagic = "coda cubin 2\n";
constexpr std::string_view kSuffix = ".cubin";
constexpr size_t kDigestSize = 64;

std::string text_of(const std::string& key, const CompiledKernel& kernel) {
  std::string payload = key + "\n" + std::to_string(kernel.registers) + " " +
                        std::to_string(kernel.defect.size()) + " " +
                        std::to_string(kernel.log.size()) + " " +
                        std::to_string(kernel.cubin.size()) + "\n" + kernel.defect + kernel.log;
  payload.append(kernel.cubin.begin(), kernel.cubin.end());
  return std::string(kCubinMagic) + sha256(payload) + "\n" + payload;
}

// None if the text was not written by text_of.
std::optional<CompiledKernel> parse(const std::string& key, std::string_view text) {
  const size_t head = kCubinMagic.size() + kDigestSize + 1;
  if (!text.starts_with(kCubinMagic) || text.size() < head) return std::nullopt;
  std::string_view payload = text.substr(head);
  if (text[head - 1] != '\n') return std::nullopt;
  if (text.substr(kCubinMagic.size(), kDigestSize) != sha256(payload)) return std::nullopt;
  if (!payload.starts_with(key + "\n")) return std::nullopt;
  payload.remove_prefix(key.size() + 1);
  const size_t line = payload.find('\n');
  if (line == std::string_view::npos) return std::nullopt;
  std::istringstream numbers{std::string(payload.substr(0, line))};
  CompiledKernel kernel;
  size_t defect = 0;
  size_t log = 0;
  size_t cubin = 0;
  if (!(numbers >> kernel.registers >> defect >> log >> cubin)) return std::nullopt;
  const std::string_view rest = payload.substr(line + 1);
  if (cubin == 0 || rest.size() != defect + log + cubin) return std::nullopt;
  kernel.defect = rest.substr(0, defect);
  kernel.log = rest.substr(defect, log);
  kernel.cubin.assign(rest.begin() + static_cast<std::ptrdiff_t>(defect + log), rest.end());
  return kernel;
}

// Holds a lock while it lives. Without locks (read-only folder, file system without locks) two
// processes may compile the same kernel, which is only slower.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& file)
      : descriptor_(::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)) {
    if (descriptor_ < 0) return;
    while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

struct Entry {
  fs::path path;
  fs::file_time_type used;
  int64_t bytes = 0;
};

std::vector<Entry> list_entries(const fs::path& folder) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;  // another process may remove it concurrently
    const fs::file_time_type used = at->last_write_time(gone);
    const uintmax_t bytes = gone ? 0 : at->file_size(gone);
    if (gone || at->path().extension() != kSuffix) continue;
    entries.push_back({at->path(), used, static_cast<int64_t>(bytes)});
  }
  return entries;
}

}  // namespace

fs::path default_cache_folder() {
  if (const std::string own = environment("CODA_CACHE_DIR"); !own.empty()) return fs::path(own);
  if (const std::string caches = environment("XDG_CACHE_HOME"); !caches.empty())
    return fs::path(caches) / "coda";
  if (const std::string home = environment("HOME"); !home.empty())
    return fs::path(home) / ".cache/coda";
  return {};
}

std::string digest_of(const NvrtcCompiler::Headers& headers) {
  Sha256 hash;
  for (const auto& [name, text] : headers) {
    hash.add_field(name);
    hash.add_field(text);
  }
  return hash.digest();
}

std::string cache_key(CompilerVersion version, const Target& target,
                      std::span<const std::string> options, const std::string& headers_digest,
                      const std::string& source) {
  Sha256 hash;
  hash.add_field(kCubinMagic);
  hash.add_field(target.architecture);
  hash.add_field(version.text());
  for (const std::string& option : options) hash.add_field(option);
  hash.add_field(headers_digest);
  hash.add_field(source);
  return hash.digest();
}

std::string cache_key(CompilerVersion version, const Target& target,
                      const std::string& headers_digest, const std::string& source) {
  return cache_key(version, target, NvrtcCompiler::options_of(version, target), headers_digest,
                   source);
}

std::string cache_key(const NvrtcCompiler& compiler, const std::string& source) {
  return cache_key(compiler.version(), compiler.target(), digest_of(compiler.headers()), source);
}

CubinCache::CubinCache(CacheOptions options) : options_(std::move(options)) {
  if (options_.folder.empty()) {
    notice("folder",
           "compiled kernels are not kept: none of CODA_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    return;
  }
  folder_ = options_.folder / "cubins";
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    notice("folder", "compiled kernels are not kept: " +
                         std::string(file_error("cannot make", folder_, error.value()).what()) +
                         "; set CODA_CACHE_DIR to another place");
    folder_.clear();
  }
}

fs::path CubinCache::path_of(const std::string& key) const {
  return folder_ / (key + std::string(kSuffix));
}

std::optional<CompiledKernel> CubinCache::find(const std::string& key) {
  if (folder_.empty()) return std::nullopt;
  std::optional<CompiledKernel> found = load(key);
  if (found) ++hits_;
  return found;
}

CompiledKernel CubinCache::get(const std::string& key,
                               const std::function<CompiledKernel()>& compile) {
  if (folder_.empty()) {
    ++misses_;
    return compile();
  }
  if (std::optional<CompiledKernel> found = load(key)) {
    ++hits_;
    return *std::move(found);
  }
  const FolderLock lock(folder_ / (key.substr(0, 2) + ".lock"));
  // The previous holder of the lock may have made the entry.
  if (std::optional<CompiledKernel> found = load(key)) {
    ++hits_;
    return *std::move(found);
  }
  ++misses_;
  CompiledKernel kernel = compile();
  if (!kernel.cubin.empty()) store(key, kernel);
  return kernel;
}

std::optional<CompiledKernel> CubinCache::load(const std::string& key) {
  const fs::path path = path_of(key);
  const OwnFile file = read_own_file(path);
  if (!file.refusal.empty()) {
    notice("refusal", "a kept kernel is not used and is compiled again: " + printable(path) + ": " +
                          file.refusal);
  }
  if (!file.text) return std::nullopt;
  std::optional<CompiledKernel> kernel = parse(key, *file.text);
  if (!kernel) {
    std::error_code ignored;
    fs::remove(path, ignored);
    notice("damage", "a kept kernel was damaged and is compiled again: " + printable(path));
    return std::nullopt;
  }
  // Sets the time of last use; this fails silently in a read-only folder.
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  return kernel;
}

void CubinCache::store(const std::string& key, const CompiledKernel& kernel) {
  const fs::path path = path_of(key);
  const std::string text = text_of(key, kernel);
  try {
    write_file_atomically(path, text, Access::owner);
  } catch (const Error& error) {
    notice("store", "compiled kernels are not kept: " + std::string(error.what()) +
                        "; set CODA_CACHE_DIR to another place");
    return;
  }
  const std::lock_guard lock(mutex_);
  if (bytes_ >= 0) bytes_ += static_cast<int64_t>(text.size());
  if (bytes_ < 0 || bytes_ > options_.limit_bytes) evict(path);
}

// Other processes evict too, so read the folder again.
void CubinCache::evict(const fs::path& newest) {
  if (bytes_ < 0) remove_temporaries(folder_);
  std::vector<Entry> entries = list_entries(folder_);
  bytes_ = 0;
  for (const Entry& entry : entries) bytes_ += entry.bytes;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (bytes_ <= options_.limit_bytes) break;
    if (entry.path == newest) continue;
    std::error_code gone;
    fs::remove(entry.path, gone);
    bytes_ -= entry.bytes;
  }
}

void CubinCache::notice(const std::string& kind, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (!noticed_.insert(kind).second) return;
  }
  if (options_.notice) {
    options_.notice(text);
  } else {
    std::fprintf(stderr, "coda: %s\n", text.c_str());
  }
}

}  // namespace coda::gpu
