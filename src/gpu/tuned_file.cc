// SPDX-License-Identifier: Apache-2.0
// Finds, reads and updates the file; a lock serialises concurrent tuners.
#include "gpu/tuned_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include "base/atomic_file.h"
#include "base/file_error.h"
#include "base/own_file.h"
#include "coda/error.h"

namespace coda::gpu {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFirstLine = "# coda tuned 1";

// What a file's name says of the GPU's size. A time says nothing of a GPU with another number.
std::string size_text(int64_t multiprocessors) {
  return ", " + std::to_string(multiprocessors) + " multiprocessors, ";
}

// A time says nothing of another target's kernels.
std::string target_text(const Target& target) {
  return &target == &sm90() ? "" : ", target " + std::string(target.name);
}

std::optional<std::string> read_rows(const fs::path& file) {
  std::optional<std::string> text = read_own_file(file).text;
  if (!text || !text->starts_with(kFirstLine)) return std::nullopt;
  return text;
}

// Serialises tuners, so that they do not lose each other's rows. Without file locks they may.
class Lock {
 public:
  explicit Lock(const fs::path& file)
      : descriptor_(::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)) {
    if (descriptor_ >= 0) ::flock(descriptor_, LOCK_EX);
  }
  ~Lock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int descriptor_;
};

}  // namespace

std::string driver_version_text() {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ..."
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const bool is_version =
        word.find('.') != std::string::npos &&
        std::all_of(word.begin(), word.end(), [](char c) { return c == '.' || std::isdigit(c); });
    if (is_version) return word;
  }
  return "CUDA " + cuda_version_text(driver().version);
}

fs::path tuned_file(const fs::path& cache_folder, const DeviceInfo& device,
                    CompilerVersion compiler, const Target& target) {
  if (cache_folder.empty()) return {};
  std::string name = device.name + size_text(device.multiprocessors) + "driver " +
                     driver_version_text() + ", NVRTC " + compiler.text() + target_text(target) +
                     ".txt";
  std::replace(name.begin(), name.end(), '/', '-');
  return cache_folder / "tuned" / name;
}

fs::path latest_tuned_file(const fs::path& cache_folder, const Target& target,
                           uint32_t multiprocessors) {
  fs::path latest;
  fs::file_time_type time;
  std::error_code error;
  if (cache_folder.empty()) return latest;
  for (fs::directory_iterator at(cache_folder / "tuned", error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const fs::file_time_type written = at->last_write_time(gone);
    if (gone || at->path().extension() != ".txt") continue;
    const std::string name = at->path().stem();
    const std::string own = target_text(target);
    if (own.empty() ? name.find(", target ") != std::string::npos : !name.ends_with(own)) continue;
    if (multiprocessors > 0 && name.find(size_text(multiprocessors)) == std::string::npos) continue;
    if (!latest.empty() && written <= time) continue;
    latest = at->path();
    time = written;
  }
  return latest;
}

std::shared_ptr<const TunedRows> tuned_rows_of(const fs::path& cache_folder,
                                               const DeviceInfo& device, KernelBuilder& builder) {
  std::error_code error;
  if (cache_folder.empty() || !fs::is_directory(cache_folder / "tuned", error)) return nullptr;
  try {
    return load_tuned_rows(tuned_file(cache_folder, device, builder.version(), builder.target()));
  } catch (const Error&) {  // no compiler; reported when a kernel is made
    return nullptr;
  }
}

std::shared_ptr<const TunedRows> load_tuned_rows(const fs::path& file) {
  if (file.empty()) return nullptr;
  const std::optional<std::string> text = read_rows(file);
  return text ? std::make_shared<const TunedRows>(*text) : nullptr;
}

void save_tuned_rows(const fs::path& file, const TunedRows& rows) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) throw file_error("cannot make", file.parent_path(), error.value());
  const Lock lock(file.parent_path() / "lock");
  TunedRows all(read_rows(file).value_or(""));
  all.add(rows);
  write_file_atomically(file, std::string(kFirstLine) + "\n" + all.text(), Access::owner);
}

}  // namespace coda::gpu
