// SPDX-License-Identifier: Apache-2.0
// Runs an emitted kernel that uses no tensor core on the CPU: its text is compiled by the C++
// compiler against host_device/, which stands in for the few files that hold machine code; a
// block's threads are fibers that run in turn from one exchange to the next. So an index mistake in
// emitted text is found without a GPU.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "hopper/host_device/host_threads.h"
#include "hopper/kernel_launch.h"

namespace coda::hopper {

// The threads of one block.
class HostBlock {
 public:
  // Runs `body(argument)` once for each thread.
  static void run(HostThreads& threads, void (*body)(const void*), const void* argument) {
    HostBlock block(threads, body, argument);
    current_ = &block;
    bool any_left = true;
    while (any_left) {
      any_left = false;
      bool any_ended = false;
      for (unsigned t = 0; t < threads.threads; ++t) {
        if (block.fibers_[t].ended) {
          any_ended = true;
          continue;
        }
        threads.thread = t;
        swapcontext(&block.scheduler_, &block.fibers_[t].context);
        if (block.fibers_[t].ended) {
          any_ended = true;
        } else {
          any_left = true;
        }
      }
      if (any_left && any_ended) {
        throw std::runtime_error("threads of a block end before others have synchronised");
      }
    }
  }

  static float exchange(float value, unsigned mask) {
    HostBlock& block = *current_;
    const unsigned thread = block.threads_.thread;
    block.slots_[thread] = value;
    yield();
    const float result = block.slots_[thread ^ mask];
    yield();
    return result;
  }
  static void yield() {
    HostBlock& block = *current_;
    swapcontext(&block.fibers_[block.threads_.thread].context, &block.scheduler_);
  }

 private:
  static constexpr size_t kStack = 256 << 10;
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    bool ended = false;
  };

  HostBlock(HostThreads& threads, void (*body)(const void*), const void* argument)
      : threads_(threads),
        body_(body),
        argument_(argument),
        fibers_(threads.threads),
        slots_(threads.threads) {
    for (Fiber& fiber : fibers_) {
      fiber.stack.reset(new char[kStack]);
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = kStack;
      fiber.context.uc_link = &scheduler_;
      makecontext(&fiber.context, &HostBlock::start, 0);
    }
  }
  static void start() {
    HostBlock& block = *current_;
    block.body_(block.argument_);
    block.fibers_[block.threads_.thread].ended = true;
  }

  inline static HostBlock* current_ = nullptr;
  HostThreads& threads_;
  void (*body_)(const void*);
  const void* argument_;
  ucontext_t scheduler_{};
  std::vector<Fiber> fibers_;
  std::vector<float> slots_;
};

// Emitted text as a loaded library. A text is compiled once and stays loaded.
class HostKernel {
 public:
  explicit HostKernel(const KernelLaunch& launch) : launch_(launch) {
    static std::map<std::string, void*> libraries;
    void*& library = libraries[launch.source];
    if (library == nullptr) library = compile(launch, "kernel" + std::to_string(libraries.size()));
    run_ = reinterpret_cast<void (*)(const void*)>(dlsym(library, "host_run"));
    set_threads_ = reinterpret_cast<void (*)(HostThreads*)>(dlsym(library, "host_threads"));
  }

  // `addresses`: of the program's tensors.
  void run(const std::vector<void*>& addresses) {
    std::vector<char> arguments(128);
    const auto append = [&](const void* data, size_t bytes) {
      arguments.insert(arguments.end(), static_cast<const char*>(data),
                       static_cast<const char*>(data) + bytes);
    };
    for (int tensor : launch_.pointers) append(&addresses[tensor], 8);
    if (launch_.pointers.empty()) arguments.resize(arguments.size() + 8);
    append(launch_.numbers.data(), 4 * launch_.numbers.size());
    arguments.resize(arguments.size() + 256);  // the struct's own padding
    std::unique_ptr<char, void (*)(void*)> aligned(
        static_cast<char*>(std::aligned_alloc(64, (arguments.size() + 63) / 64 * 64)), std::free);
    std::memcpy(aligned.get(), arguments.data(), arguments.size());
    HostThreads threads{.threads = launch_.threads,
                        .blocks = launch_.grid,
                        .exchange = &HostBlock::exchange,
                        .synchronize = &HostBlock::yield};
    set_threads_(&threads);
    for (threads.block = 0; threads.block < threads.blocks; ++threads.block) {
      HostBlock::run(threads, run_, aligned.get());
    }
  }

 private:
  // The loader knows libraries by their names.
  static void* compile(const KernelLaunch& launch, const std::string& name) {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("coda_host_kernel_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    const std::string stem = (folder / name).string();
    std::ofstream(stem + ".cc") << launch.source << R"(
namespace coda::device::precise {}
using namespace coda::device;
using namespace coda::device::precise;
extern "C" void host_run(const void* arguments) {
  )" << launch.function << R"((*static_cast<const Arguments*>(arguments));
}
extern "C" void host_threads(HostThreads* threads) { coda::device::host_threads = threads; }
)";
    const std::string root = CODA_SOURCE_DIR;
    const std::string command =
        std::string(CODA_CXX_COMPILER) +
        " -std=c++20 -O1 -w -shared -fPIC '-D__global__=' '-D__grid_constant__=' '-D__device__='"
        " '-D__forceinline__=inline' '-D__launch_bounds__(...)=' '-D__shared__=static' -I" +
        root + "/tests/hopper/host_device -I" + root + " -I" + root + "/src " + stem + ".cc -o " +
        stem + ".so 2> " + stem + ".log";
    if (std::system(command.c_str()) != 0) {
      std::ifstream log(stem + ".log");
      throw std::runtime_error(std::string(std::istreambuf_iterator<char>(log), {}) + "\n" +
                               launch.source);
    }
    void* const library = dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    std::filesystem::remove_all(folder);
    return library;
  }

  const KernelLaunch launch_;
  void (*run_)(const void*) = nullptr;
  void (*set_threads_)(HostThreads*) = nullptr;
};

}  // namespace coda::hopper
