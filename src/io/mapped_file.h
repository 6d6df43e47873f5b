// SPDX-License-Identifier: Apache-2.0
// A file's bytes, mapped read-only, so that large weights and token files need no copy and no
// memory beyond the page cache.
// If another program shortens a mapped file, reading past the new end raises SIGBUS. The first
// mapping therefore installs a handler, which replaces the missing pages by zeros and passes other
// faults to the previous handler. After reading a mapping, call require_whole(). Our own writers
// replace files, which leaves mappings valid.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace coda::io {

struct Mapping;

class MappedFile {
 public:
  // Throws Error if it cannot be opened or is no regular file. An empty file has no bytes.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const;

 private:
  Mapping* mapping_ = nullptr;  // null: the file is empty
};

// Throws Error, naming the file, if `bytes` are of a mapped file that was found to be shorter when
// it was read: what was read is not what the file held. Bytes of other memory are always whole.
void require_whole(std::span<const std::byte> bytes);

// The whole content of a (small) file; throws Error as MappedFile does.
std::string read_file(const std::filesystem::path& path);

// Throws Error for an empty file, which a full disk or an interrupted copy leaves.
void require_not_empty(size_t bytes, const std::string& source);

}  // namespace coda::io
