// SPDX-License-Identifier: Apache-2.0
// A file's bytes, mapped read-only: large weights and token files cost no copy and no memory beyond
// the page cache. The file must not be shortened while it is mapped (our own writers replace files,
// which leaves a mapping valid).
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace coda::io {

class MappedFile {
 public:
  // Throws Error if it cannot be opened or is no regular file. An empty file has no bytes.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole content of a (small) file; throws Error as MappedFile does.
std::string read_file(const std::filesystem::path& path);

}  // namespace coda::io
