// SPDX-License-Identifier: Apache-2.0
// NVRTC's functions are declared here, because no CUDA headers are needed to build.
#include "gpu/jit/nvrtc_compiler.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <regex>
#include <utility>

#include "coda/error.h"
#include "gpu/jit/device_texts.h"
#include "gpu/jit/dynamic_library.h"
#include "gpu/jit/parallel_for.h"

namespace coda::gpu {
namespace {

using Handle = void*;

struct Api {
  std::string location;
  int (*version)(int*, int*);
  const char* (*error_string)(int);
  int (*create)(Handle*, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile)(Handle, int, const char* const*);
  int (*log_size)(Handle, size_t*);
  int (*log)(Handle, char*);
  int (*cubin_size)(Handle, size_t*);
  int (*cubin)(Handle, char*);
  int (*ptx_size)(Handle, size_t*);
  int (*ptx)(Handle, char*);
  int (*destroy)(Handle*);

  Api() {
    const DynamicLibrary nvrtc(nvrtc_library());
    location = nvrtc.location();
    nvrtc.load(version, "nvrtcVersion");
    nvrtc.load(error_string, "nvrtcGetErrorString");
    nvrtc.load(create, "nvrtcCreateProgram");
    nvrtc.load(compile, "nvrtcCompileProgram");
    nvrtc.load(log_size, "nvrtcGetProgramLogSize");
    nvrtc.load(log, "nvrtcGetProgramLog");
    nvrtc.load(cubin_size, "nvrtcGetCUBINSize");
    nvrtc.load(cubin, "nvrtcGetCUBIN");
    nvrtc.load(ptx_size, "nvrtcGetPTXSize");
    nvrtc.load(ptx, "nvrtcGetPTX");
    nvrtc.load(destroy, "nvrtcDestroyProgram");
  }
};

const Api& api() {
  static const Api instance;
  return instance;
}

constexpr int kCompilationError = 6;  // an error in the source; the log describes it

void check(int status, const char* what) {
  if (status == 0) return;
  throw Error(std::string("NVRTC at ") + api().location + ": " + what + ": " +
              api().error_string(status) +
              ". Remedy: reinstall it (`pip install "
              "nvidia-cuda-nvrtc`), or set CODA_NVRTC to another");
}

// The largest match, because a module may hold several kernels.
int number_before(const std::string& log, const std::string& words) {
  const std::regex pattern("(\\d+) " + words);
  int largest = 0;
  for (std::sregex_iterator match(log.begin(), log.end(), pattern), end; match != end; ++match) {
    largest = std::max(largest, std::stoi((*match)[1]));
  }
  return largest;
}

std::string find_defect(const std::string& log) {
  if (log.find("serialized") != std::string::npos) return "wgmma is serialized";
  if (number_before(log, "bytes spill") != 0) return "registers spill";
  if (number_before(log, "bytes stack frame") != 0) return "local memory is used";
  return "";
}

struct ProgramHandle {
  Handle handle = nullptr;
  ProgramHandle() = default;
  ProgramHandle(const ProgramHandle&) = delete;
  ProgramHandle& operator=(const ProgramHandle&) = delete;
  ~ProgramHandle() {
    if (handle != nullptr) api().destroy(&handle);
  }
};

}  // namespace

int64_t CompiledKernel::spilled_bytes() const {
  if (defect.empty()) return 0;
  constexpr int64_t kSerialized = int64_t{1} << 32;
  const int64_t bytes = std::max(
      {1, number_before(log, "bytes spill stores"), number_before(log, "bytes stack frame")});
  return bytes + (log.find("serialized") == std::string::npos ? 0 : kSerialized);
}

NvrtcCompiler::Headers embedded_headers(const Target& target) {
  NvrtcCompiler::Headers headers;
  for (const EmbeddedText& text : device_texts())
    headers.emplace(std::string(text.name), std::string(text.text));
  const std::string own = "device/" + std::string(target.folder) + "/ptx/";
  for (const EmbeddedText& text : device_texts()) {
    if (!text.name.starts_with(own)) continue;
    const auto common = headers.find("device/ptx/" + std::string(text.name.substr(own.size())));
    if (common != headers.end()) common->second = text.text;
  }
  return headers;
}

NvrtcCompiler::NvrtcCompiler(const Target& target)
    : NvrtcCompiler(embedded_headers(target), target) {}

NvrtcCompiler::NvrtcCompiler(Headers headers, const Target& target)
    : headers_(std::move(headers)), target_(&target) {
  check(api().version(&version_.major, &version_.minor), "asking for its version");
  require(version_ >= kOldestNvrtc, "NVRTC at " + api().location + " has version " +
                                        version_.text() + "; " + kOldestNvrtc.text() +
                                        " is the oldest that works. Remedy: `pip install "
                                        "nvidia-cuda-nvrtc`, or set CODA_NVRTC to a newer one");
}

const std::string& NvrtcCompiler::location() const { return api().location; }

std::string NvrtcCompiler::file() const {
  Dl_info info = {};
  const bool known = dladdr(reinterpret_cast<void*>(api().version), &info) != 0;
  return known && info.dli_fname != nullptr ? info.dli_fname : api().location;
}

std::string_view NvrtcCompiler::architecture_of(CompilerVersion version, const Target& target) {
  return version >= target.compiler ? target.architecture : target.ptx;
}

// --fmad=false: device types decide which sums are fused (device/values/elements.cuh), not the
// compiler, so that the bits do not depend on the tile configuration.
std::vector<std::string> NvrtcCompiler::options(std::string_view architecture) {
  return {"--gpu-architecture=" + std::string(architecture), "--std=c++20",
          "--device-as-default-execution-space", "--fmad=false", "--ptxas-options=-v"};
}

std::vector<std::string> NvrtcCompiler::options_of(CompilerVersion version, const Target& target) {
  std::vector<std::string> all = options(architecture_of(version, target));
  if (version.major >= 13) all.emplace_back("--no-cache");
  return all;
}

CompiledKernel NvrtcCompiler::compile(const std::string& source) const {
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const auto& [name, text] : headers_) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  ProgramHandle program;
  check(api().create(&program.handle, source.c_str(), "kernel.cu", static_cast<int>(names.size()),
                     texts.data(), names.data()),
        "taking a kernel's text");
  const std::vector<std::string> options = options_of(version_, *target_);
  std::vector<const char*> all;
  for (const std::string& option : options) all.push_back(option.c_str());
  const int status = api().compile(program.handle, static_cast<int>(all.size()), all.data());
  if (status != 0 && status != kCompilationError) check(status, "compiling a kernel");
  CompiledKernel kernel;
  size_t size = 0;
  check(api().log_size(program.handle, &size), "reading the log");
  kernel.log.resize(size);
  check(api().log(program.handle, kernel.log.data()), "reading the log");
  while (!kernel.log.empty() && kernel.log.back() == '\0') kernel.log.pop_back();
  if (status != 0) {
    kernel.defect = "does not compile";
    return kernel;
  }
  const bool is_ptx = architecture_of(version_, *target_).starts_with("compute_");
  check((is_ptx ? api().ptx_size : api().cubin_size)(program.handle, &size), "reading the cubin");
  kernel.cubin.resize(size);
  check((is_ptx ? api().ptx : api().cubin)(program.handle, kernel.cubin.data()),
        "reading the cubin");
  kernel.defect = find_defect(kernel.log);
  kernel.registers = number_before(kernel.log, "registers");
  return kernel;
}

std::vector<CompiledKernel> NvrtcCompiler::compile_all(
    const std::vector<std::string>& sources) const {
  std::vector<CompiledKernel> kernels(sources.size());
  parallel_for(sources.size(), 0, [&](size_t i) { kernels[i] = compile(sources[i]); });
  return kernels;
}

}  // namespace coda::gpu
