// SPDX-License-Identifier: Apache-2.0
// coda info: the processor, the backends and the versions, for reports and for oneself.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "commands.h"
#include "cpu/cpu_backend.h"

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

void run(bool as_json) {
  const cpu::GemmLibrary library = cpu::resolve(cpu::GemmLibrary::best);
  const char* products = library == cpu::GemmLibrary::avx512    ? "own AVX-512 kernel"
                         : library == cpu::GemmLibrary::libxsmm ? "libxsmm"
                                                                : "portable";
  nlohmann::ordered_json info{
      {"version", CODA_VERSION},
      {"processor", cpuinfo("model name")},
      {"cores", std::thread::hardware_concurrency()},
      {"vector extensions", vector_extensions()},
      {"memory", fmt::format("{:.1f} GB", memory_bytes() / 1e9)},
      {"backends", "cpu"},
      {"cpu products", products},
      {"cpu bf16", cpu::multiplies_bf16(library) ? "multiplied as it is" : "multiplied as fp32"},
      {"compiler", __VERSION__},
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
