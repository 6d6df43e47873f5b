// SPDX-License-Identifier: Apache-2.0
// Files that are replaced as a whole or not at all. Bytes go to a temporary name in the same
// folder; commit() syncs it, renames it over the old file and syncs the folder. Until then, and
// after any failure, the old file is untouched; a destroyed writer removes its temporary, so only a
// crash leaves one (remove_temporaries). All files that this project writes are written so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace coda {

// Who may read and write a file: whom the umask lets, or the permissions of the file that is
// replaced; or only the owner, for what no one else may change.
enum class Access : uint8_t { usual, owner };

class AtomicFile {
 public:
  // Opens the temporary. If `path` is a symbolic link, the link is replaced and what it leads to
  // stays: in a folder that somebody else has made it may lead anywhere. Throws Error if `path`
  // exists and is neither a link nor a regular file, or if its folder cannot be written.
  explicit AtomicFile(const std::filesystem::path& path, Access access = Access::usual);
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

void write_file_atomically(const std::filesystem::path& path, std::string_view contents,
                           Access access = Access::usual);

// Makes renames and removals in a folder durable.
void sync_folder(const std::filesystem::path& folder);

// Makes a folder and those above it that are missing, durably. Throws Error.
void make_folders(const std::filesystem::path& folder);

// Removes the temporaries of writers that have died from a folder. Those of living ones, of this
// or of another process, are locked, and stay. What cannot be removed is left.
void remove_temporaries(const std::filesystem::path& folder);

}  // namespace coda
