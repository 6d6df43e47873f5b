// SPDX-License-Identifier: Apache-2.0
#include "coda/system_info.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "coda/error.h"
#include "coda/version.h"
#include "cpu/cpu_backend.h"
#include "cpu/library_versions.h"
#include "gpu/configure/tuned_table.h"
#include "gpu/launch/context.h"
#include "gpu/tuned_file.h"

namespace coda {
namespace {

// The value of a line "key : value" of /proc/cpuinfo.
std::string cpuinfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    return colon + 2 <= line.size() ? line.substr(colon + 2) : "";
  }
  return "unknown";
}

std::string vector_extensions() {
  const std::string flags = " " + cpuinfo("flags") + " ";
  std::string found;
  for (const char* name : {"avx2", "fma", "avx512f", "avx512bw", "avx512_bf16", "amx_bf16"}) {
    if (flags.find(std::string(" ") + name + " ") == std::string::npos) continue;
    found += (found.empty() ? "" : " ") + std::string(name);
  }
  return found.empty() ? "none of AVX2 and later" : found;
}

// "12.3 MB".
std::string in_units(double bytes, double unit, const char* name) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", bytes / unit, name);
  return text;
}

double memory_bytes() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
}

// What `ask` says, or why it cannot: one line, as the others are.
std::string answer(const std::function<std::string()>& ask) {
  try {
    return ask();
  } catch (const Error& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    return "none: " + text;
  }
}

std::string gpu_text() {
  const gpu::Context context;
  const gpu::DeviceInfo& gpu = context.info();
  const gpu::Target& target = gpu::target_of(gpu);
  return gpu.name + ", " + std::to_string(gpu.multiprocessors) +
         " multiprocessors, compute capability " + std::to_string(gpu.major) + "." +
         std::to_string(gpu.minor) + ", kernels of the target " + std::string(target.name);
}

std::string driver_text() {
  const int version = gpu::driver().version;
  return gpu::driver_version_text() + ", runs CUDA " + gpu::cuda_version_text(version);
}

std::string compiler_text() {
  const gpu::NvrtcCompiler compiler;
  return compiler.version().text() + " at " + compiler.location();
}

std::string cache_text(const std::filesystem::path& folder) {
  if (folder.empty()) return "none: CODA_CACHE_DIR, XDG_CACHE_HOME and HOME are not set";
  int64_t entries = 0;
  double bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder / "cubins", error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() != ".cubin") continue;
    std::error_code gone;
    const auto size = at->file_size(gone);
    if (gone) continue;
    ++entries;
    bytes += static_cast<double>(size);
  }
  return folder.string() + ": " + std::to_string(entries) + " kernels, " +
         in_units(bytes, 1e6, "MB");
}

// The file of this GPU, else the one that was written last.
std::string tuned_text(const std::filesystem::path& folder) {
  std::filesystem::path file = gpu::latest_tuned_file(folder, gpu::chosen_target());
  try {
    const gpu::Context context;
    const std::filesystem::path own = gpu::tuned_file(
        folder, context.info(), gpu::NvrtcCompiler().version(), gpu::target_of(context.info()));
    file = std::filesystem::exists(own) ? own : std::filesystem::path();
  } catch (const Error&) {
  }
  const auto rows = gpu::load_tuned_rows(file);
  if (rows == nullptr) return "nothing on this machine: `coda tune` does it";
  return std::to_string(rows->size()) + " kernels, " + file.string();
}

}  // namespace

std::vector<SystemFact> system_info() {
  const cpu::GemmLibrary library = cpu::resolve(cpu::GemmLibrary::best);
  const std::string gpu = answer(gpu_text);
  std::string driver = answer(driver_text);
  if (driver == gpu) driver = "none: see gpu";  // the driver is what the GPU lacks
  const char* products = library == cpu::GemmLibrary::avx512    ? "own AVX-512 kernel"
                         : library == cpu::GemmLibrary::libxsmm ? "libxsmm"
                                                                : "portable";
  return {
      {"version", std::string(version())},
      {"processor", cpuinfo("model name")},
      {"cores", int64_t{std::thread::hardware_concurrency()}},
      {"threads", int64_t{omp_get_max_threads()}},
      {"vector extensions", vector_extensions()},
      {"memory", in_units(memory_bytes(), 1e9, "GB")},
      {"backends", "cpu, gpu"},
      {"cpu products", products},
      {"cpu bf16", cpu::multiplies_bf16(library) ? "multiplied as it is" : "multiplied as fp32"},
      {"cpu libraries", cpu::library_versions()},
      {"compiler", __VERSION__},
      {"gpu", gpu},
      {"gpu driver", driver},
      {"nvrtc", answer(compiler_text)},
      {"kernel cache", cache_text(gpu::default_cache_folder())},
      {"shipped table", std::to_string(gpu::measured_table(gpu::sm90()).size()) + " kernels"},
      {"tuned", tuned_text(gpu::default_cache_folder())},
  };
}

}  // namespace coda
