// SPDX-License-Identifier: Apache-2.0
// A record has four lines: magic, file, size and time of the file, version.
#include "gpu/jit/compiler_record.h"

#include <sys/stat.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <system_error>

#include "base/atomic_file.h"
#include "base/own_file.h"
#include "base/sha256.h"
#include "coda/error.h"

namespace coda::gpu {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kRecordMagic = "coda compiler 1\n";

// Environment variables that affect where the compiler is found.
constexpr const char* kVariables[] = {"CODA_NVRTC",  "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH",
                                      "VIRTUAL_ENV", "CONDA_PREFIX",    "HOME",      "PATH"};

fs::path file_of_environment(const fs::path& folder) {
  Sha256 hash;
  for (const char* variable : kVariables) {
    const char* value = std::getenv(variable);
    hash.add_field(value == nullptr ? "" : value);
  }
  return folder / ("compiler-" + hash.digest().substr(0, 16));
}

// "size seconds nanoseconds" of a file; empty if it does not exist.
std::string stamp_of(const fs::path& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) return "";
  return std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) + " " +
         std::to_string(status.st_mtim.tv_nsec);
}

std::string text_of(const fs::path& library, CompilerVersion version) {
  return std::string(kRecordMagic) + library.string() + "\n" + stamp_of(library) + "\n" +
         std::to_string(version.major) + " " + std::to_string(version.minor) + "\n";
}

std::string read(const fs::path& path) { return read_own_file(path).text.value_or(""); }

}  // namespace

std::optional<CompilerVersion> recorded_compiler(const fs::path& folder) {
  if (folder.empty()) return std::nullopt;
  const std::string text = read(file_of_environment(folder));
  if (!text.starts_with(kRecordMagic)) return std::nullopt;
  std::istringstream lines(text.substr(kRecordMagic.size()));
  std::string library;
  std::string stamp;
  CompilerVersion version;
  if (!std::getline(lines, library) || !std::getline(lines, stamp)) return std::nullopt;
  if (!(lines >> version.major >> version.minor)) return std::nullopt;
  if (stamp.empty() || stamp_of(library) != stamp) return std::nullopt;
  return version;
}

void record_compiler(const fs::path& folder, const fs::path& library, CompilerVersion version) {
  std::error_code error;
  const fs::path file = fs::canonical(library, error);
  if (folder.empty() || error) return;
  const fs::path path = file_of_environment(folder);
  const std::string text = text_of(file, version);
  if (read(path) == text) return;
  try {
    write_file_atomically(path, text, Access::owner);
  } catch (const Error&) {  // the cache has reported this, or will
  }
}

}  // namespace coda::gpu
