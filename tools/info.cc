// SPDX-License-Identifier: Apache-2.0
// coda info: the processor, the backends and the versions, for reports and for oneself.
#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "coda/error.h"
#include "coda/version.h"
#include "commands.h"
#include "cpu/cpu_backend.h"
#include "cpu/library_versions.h"
#include "hopper/context.h"
#include "hopper/tuned_file.h"
#include "hopper/tuned_table.h"

namespace coda::tools {
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
  const hopper::Context context;
  const hopper::DeviceInfo& gpu = context.info();
  hopper::check_architecture(gpu);
  return fmt::format("{}, {} multiprocessors, compute capability {}.{}", gpu.name,
                     gpu.multiprocessors, gpu.major, gpu.minor);
}

std::string driver_text() {
  const int version = hopper::driver().version;
  return fmt::format("{}, runs CUDA {}", hopper::driver_version_text(),
                     hopper::cuda_version_text(version));
}

std::string compiler_text() {
  const hopper::NvrtcCompiler compiler;
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
  return fmt::format("{}: {} kernels, {:.1f} MB", folder.string(), entries, bytes / 1e6);
}

// The file of this GPU, else the one that was written last.
std::string tuned_text(const std::filesystem::path& folder) {
  std::filesystem::path file = hopper::latest_tuned_file(folder);
  try {
    const std::filesystem::path own =
        hopper::tuned_file(folder, hopper::Context().info(), hopper::NvrtcCompiler().version());
    file = std::filesystem::exists(own) ? own : std::filesystem::path();
  } catch (const Error&) {
  }
  const auto rows = hopper::load_tuned_rows(file);
  if (rows == nullptr) return "nothing on this machine: `coda tune` does it";
  return fmt::format("{} kernels, {}", rows->size(), file.string());
}

void run(bool as_json) {
  const cpu::GemmLibrary library = cpu::resolve(cpu::GemmLibrary::best);
  const std::string gpu = answer(gpu_text);
  std::string driver = answer(driver_text);
  if (driver == gpu) driver = "none: see gpu";  // the driver is what the GPU lacks
  const char* products = library == cpu::GemmLibrary::avx512    ? "own AVX-512 kernel"
                         : library == cpu::GemmLibrary::libxsmm ? "libxsmm"
                                                                : "portable";
  nlohmann::ordered_json info{
      {"version", std::string(version())},
      {"processor", cpuinfo("model name")},
      {"cores", std::thread::hardware_concurrency()},
      {"threads", omp_get_max_threads()},
      {"vector extensions", vector_extensions()},
      {"memory", fmt::format("{:.1f} GB", memory_bytes() / 1e9)},
      {"backends", "cpu, hopper"},
      {"cpu products", products},
      {"cpu bf16", cpu::multiplies_bf16(library) ? "multiplied as it is" : "multiplied as fp32"},
      {"cpu libraries", cpu::library_versions()},
      {"compiler", __VERSION__},
      {"gpu", gpu},
      {"gpu driver", driver},
      {"nvrtc", answer(compiler_text)},
      {"kernel cache", cache_text(hopper::default_cache_folder())},
      {"shipped table", fmt::format("{} kernels", hopper::tuned_table().size())},
      {"tuned", tuned_text(hopper::default_cache_folder())},
  };
  if (as_json) {
    fmt::print("{}\n", info.dump(2));
    return;
  }
  for (const auto& [name, value] : info.items()) {
    fmt::print("{:18} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

}  // namespace

void add_info(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App& command =
      *app.add_subcommand("info", "The processor, the backends and the versions in use");
  command.add_flag("--json", *as_json, "Print one JSON object");
  command.callback([as_json] { run(*as_json); });
}

}  // namespace coda::tools
