// SPDX-License-Identifier: Apache-2.0
// Files that are replaced as a whole or not at all. Bytes go to a temporary name in the same
// folder; commit() syncs it, renames it over the old file and syncs the folder. Until then, and
// after any failure, the old file is untouched; a destroyed writer removes its temporary, so only a
// crash leaves one (its name ends in ".tmp").
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace coda {

class AtomicFile {
 public:
  // Opens the temporary. If `path` is a symbolic link, the file it names is replaced. Throws Error
  // if `path` exists and is no regular file, or if its folder cannot be written.
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends; throws Error (full disk, file size limit, ...).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  // Makes what was written the file's content, durably. At most once; nothing may be written after
  // it.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

// Makes renames and removals in a folder durable.
void sync_folder(const std::filesystem::path& folder);

}  // namespace coda
