// SPDX-License-Identifier: Apache-2.0
#include "bench/hopper_table/nvrtc_compiler.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <stdexcept>
#include <thread>

#include "bench/hopper_table/dynamic_library.h"

namespace coda::hopper_table {
namespace {

using Program = void*;

struct Api {
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile)(Program, int, const char* const*);
  int (*log_size)(Program, std::size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, std::size_t*);
  int (*cubin)(Program, char*);
  int (*destroy)(Program*);

  Api() {
    const DynamicLibrary nvrtc({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
    nvrtc.load(create, "nvrtcCreateProgram");
    nvrtc.load(compile, "nvrtcCompileProgram");
    nvrtc.load(log_size, "nvrtcGetProgramLogSize");
    nvrtc.load(log, "nvrtcGetProgramLog");
    nvrtc.load(cubin_size, "nvrtcGetCUBINSize");
    nvrtc.load(cubin, "nvrtcGetCUBIN");
    nvrtc.load(destroy, "nvrtcDestroyProgram");
  }
};

const Api& api() {
  static const Api instance;
  return instance;
}

constexpr const char* kOptions[] = {"--gpu-architecture=sm_90a", "--std=c++20",
                                    "--device-as-default-execution-space", "--ptxas-options=-v"};

// The largest, since a module may hold several kernels.
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

}  // namespace

NvrtcCompiler::NvrtcCompiler(const std::string& root) {
  api();  // a missing library is reported here, not from a worker thread
  for (const auto& entry : std::filesystem::directory_iterator(root + "/device")) {
    if (entry.path().extension() != ".cuh") continue;
    std::ifstream file(entry.path());
    headers_["device/" + entry.path().filename().string()] =
        std::string(std::istreambuf_iterator<char>(file), {});
  }
  if (headers_.empty()) throw std::runtime_error("no device/*.cuh under " + root);
}

std::vector<std::string> NvrtcCompiler::header_names() const {
  std::vector<std::string> names;
  for (const auto& [name, text] : headers_) names.push_back(name);
  return names;
}

CompiledKernel NvrtcCompiler::compile(const std::string& source) const {
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const auto& [name, text] : headers_) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  Program program = nullptr;
  if (api().create(&program, source.c_str(), "kernel.cu", static_cast<int>(names.size()),
                   texts.data(), names.data()) != 0) {
    throw std::runtime_error("nvrtcCreateProgram failed");
  }
  const int status = api().compile(program, std::size(kOptions), kOptions);
  CompiledKernel kernel;
  std::size_t size = 0;
  api().log_size(program, &size);
  kernel.log.resize(size);
  api().log(program, kernel.log.data());
  if (status == 0) {
    api().cubin_size(program, &size);
    kernel.cubin.resize(size);
    api().cubin(program, kernel.cubin.data());
    kernel.defect = find_defect(kernel.log);
    kernel.registers = number_before(kernel.log, "registers");
  } else {
    kernel.defect = "does not compile";
  }
  api().destroy(&program);
  return kernel;
}

std::vector<CompiledKernel> NvrtcCompiler::compile_all(
    const std::vector<std::string>& sources) const {
  std::vector<CompiledKernel> kernels(sources.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> workers;
  const unsigned count = std::max(1u, std::thread::hardware_concurrency());
  for (unsigned i = 0; i < count; ++i) {
    workers.emplace_back([&] {
      for (std::size_t job = next++; job < sources.size(); job = next++) {
        kernels[job] = compile(sources[job]);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  return kernels;
}

}  // namespace coda::hopper_table
