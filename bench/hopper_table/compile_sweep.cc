// SPDX-License-Identifier: Apache-2.0
// Compiles the table's representative configurations to an sm_90a cubin, on a machine that needs no
// GPU, and fails if one spills, uses local memory or has its wgmma serialised; and each device file
// by itself, so that none leans on what another happens to include.
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bench/hopper_table/nvrtc_compiler.h"
#include "bench/hopper_table/variants.h"
#include "coda/error.h"
#include "hopper/dynamic_library.h"

int main(int argc, char** argv) try {
  using namespace coda::hopper_table;
  const std::string root = argc > 1 ? argv[1] : ".";
  const std::string only = argc > 2 ? argv[2] : "";
  try {
    const coda::hopper::DynamicLibrary nvrtc(coda::hopper::nvrtc_library());
  } catch (const coda::Error& error) {
    std::fprintf(stderr, "skipped, no NVRTC: %s\n", error.what());
    return 77;
  }
  const NvrtcCompiler compiler(read_headers(root));
  std::vector<std::string> names;
  std::vector<std::string> sources;
  const auto add = [&](const std::string& name, const std::string& source) {
    if (name.find(only) == std::string::npos) return;
    names.push_back(name);
    sources.push_back(source);
  };
  for (const auto& [header, text] : compiler.headers()) {
    add(header, "#include \"" + header + "\"\n");
  }
  for (const Variant& variant : representative_variants()) {
    add(variant.name(), kernel_source(variant));
  }
  const auto start = std::chrono::steady_clock::now();
  const std::vector<CompiledKernel> kernels = compiler.compile_all(sources);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  int failures = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (kernels[i].defect.empty()) continue;
    ++failures;
    std::printf("%s: %s\n%s\n", names[i].c_str(), kernels[i].defect.c_str(),
                kernels[i].log.c_str());
  }
  std::printf("%zu files and kernels in %.1f s, %d with a defect\n", kernels.size(),
              seconds.count(), failures);
  return failures == 0 && !kernels.empty() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
