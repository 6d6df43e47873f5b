// SPDX-License-Identifier: Apache-2.0
// Runs an emitted kernel on the CPU: its text is compiled by the C++ compiler against host_device/,
// which stands in for the few files that hold machine code; a block's threads are fibers that run
// in turn from one wait to the next. So an index mistake in emitted text or in device/ is found
// without a GPU. Of products the mainloop is stood in for as a whole (its operands come by way of
// the same descriptors); what follows it is the device's own text: the ring of staging buffers and
// its barriers, fragments, partials, adds.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/codegen/kernel_launch.h"
#include "gpu/host_device/host_map.h"
#include "gpu/host_device/host_threads.h"

namespace coda::gpu {

// The threads of one block, or of a cluster's blocks together.
class HostBlock {
 public:
  // Runs `body(argument)` once for each thread. A warp is held back for some rounds, as far as
  // others can go on without it. So a wait for fewer warps than there are is noticed. Where the
  // others can not, it arrives at what they wait for; then the same warp is held right behind that
  // barrier, or another one. So memory that some warps fill anew while one has yet to read it is
  // noticed too.
  static void run(HostThreads& threads, void (*body)(const void*), const void* argument) {
    constexpr unsigned kWarp = 32;
    constexpr unsigned kMostRounds = 256;
    HostBlock block(threads, body, argument);
    current_ = &block;
    const unsigned all = threads.threads * threads.cluster;
    const unsigned first = threads.block;
    const unsigned warps = (all + kWarp - 1) / kWarp;
    std::minstd_rand random(threads.block + 1);
    unsigned held = first % warps;
    unsigned rounds = kMostRounds;
    unsigned left = all;
    // One turn for each thread from `begin` to `end` that waits for nothing; false: for none.
    const auto run_threads = [&](unsigned begin, unsigned end) {
      bool any_ran = false;
      for (unsigned t = begin; t < end; ++t) {
        Fiber& fiber = block.fibers_[t];
        if (fiber.ended || (fiber.place != nullptr && *fiber.place == fiber.value)) continue;
        any_ran = true;
        threads.thread = t % threads.threads;
        threads.block = first + t / threads.threads;
        block.enter(fiber);
        if (fiber.ended) --left;
      }
      return any_ran;
    };
    while (left > 0) {
      if (rounds-- == 0) {
        held = random() % warps;
        rounds = random() % kMostRounds;
      }
      const unsigned begin = held * kWarp;
      const unsigned end = std::min(begin + kWarp, all);
      const bool before = run_threads(0, begin);
      const bool behind = run_threads(end, all);
      if (before || behind) continue;
      if (!run_threads(begin, end))
        throw std::runtime_error("the threads of a block wait for one another");
      if (random() % 2 == 0) held = random() % warps;
    }
    threads.block = first;
  }

  static void wait_while(const unsigned* place, unsigned value) {
    Fiber& fiber = current_->running();
    fiber.place = place;
    fiber.value = value;
    current_->leave(fiber);
  }

 private:
  static constexpr size_t kStack = 256 << 10;
  // What __builtin_setjmp writes: where a stack was left. swapcontext() calls the system twice for
  // each switch, to save the mask of signals, which took half of the time of these tests.
  using Place = std::array<void*, 5>;
  struct Fiber {
    ucontext_t begin;  // of its stack, until it runs
    Place at{};        // where it waits
    bool began = false;
    const unsigned* place = nullptr;  // runs when what stands there is no longer the value
    unsigned value = 0;
    bool ended = false;
  };

  HostBlock(HostThreads& threads, void (*body)(const void*), const void* argument)
      : threads_(threads),
        body_(body),
        argument_(argument),
        first_(threads.block),
        fibers_(threads.threads * threads.cluster) {
    // Kept from one block to the next: new memory costs the system more than the kernel's work.
    static std::vector<std::unique_ptr<char[]>> stacks;
    while (stacks.size() < fibers_.size()) stacks.emplace_back(new char[kStack]);
    for (size_t i = 0; i < fibers_.size(); ++i) {
      Fiber& fiber = fibers_[i];
      getcontext(&fiber.begin);
      fiber.begin.uc_stack.ss_sp = stacks[i].get();
      fiber.begin.uc_stack.ss_size = kStack;
      fiber.begin.uc_link = nullptr;
      makecontext(&fiber.begin, &HostBlock::start, 0);
    }
  }
  static void start() {
    HostBlock& block = *current_;
    block.body_(block.argument_);
    block.running().ended = true;
    jump(block.scheduler_);
  }
  // Runs the fiber until it waits or ends.
  [[gnu::noinline]] void enter(Fiber& fiber) {
    if (__builtin_setjmp(scheduler_.data()) != 0) return;
    if (fiber.began) jump(fiber.at);
    fiber.began = true;
    setcontext(&fiber.begin);
  }
  [[gnu::noinline]] void leave(Fiber& fiber) {
    if (__builtin_setjmp(fiber.at.data()) == 0) jump(scheduler_);
  }
  [[gnu::noinline, noreturn]] static void jump(Place& place) { __builtin_longjmp(place.data(), 1); }
  Fiber& running() {
    return fibers_[(threads_.block - first_) * threads_.threads + threads_.thread];
  }

  inline static HostBlock* current_ = nullptr;
  HostThreads& threads_;
  void (*body_)(const void*);
  const void* argument_;
  unsigned first_;  // block
  Place scheduler_{};
  std::vector<Fiber> fibers_;
};

// Emitted text as a loaded library. A text is compiled once and stays loaded.
class HostKernel {
 public:
  explicit HostKernel(const KernelLaunch& launch) : launch_(launch) {
    static std::map<std::string, void*> libraries;
    void*& library = libraries[launch.source];
    if (library == nullptr) library = compile(launch, "kernel" + std::to_string(libraries.size()));
    run_ = reinterpret_cast<void (*)(const void*)>(dlsym(library, "host_run"));
    begin_ = reinterpret_cast<void (*)(HostThreads*)>(dlsym(library, "host_begin"));
    end_ = reinterpret_cast<void (*)()>(dlsym(library, "host_end"));
  }

  // `addresses`: of the program's tensors, `strides`: elements between their rows. `bytes` of an
  // element of each; where it is empty, what the copy engine moves has 16 bits.
  void run(const std::vector<void*>& addresses, const std::vector<int64_t>& strides,
           const std::vector<unsigned>& bytes = {}) {
    std::vector<char> arguments;
    const auto append = [&](const void* data, size_t bytes) {
      arguments.insert(arguments.end(), static_cast<const char*>(data),
                       static_cast<const char*>(data) + bytes);
    };
    for (const TensorMapSpec& map : launch_.maps) {
      const unsigned element = bytes.empty() ? 2 : bytes[static_cast<size_t>(map.tensor)];
      const HostMap host{static_cast<unsigned char*>(addresses[map.tensor]) +
                             (map.row_offset * strides[map.tensor] + map.column_offset) * element,
                         map.rows,
                         map.columns,
                         strides[map.tensor],
                         map.box_rows,
                         map.box_columns,
                         element,
                         map.matrix_rows};
      append(&host, sizeof(host));
      arguments.resize((arguments.size() + 127) / 128 * 128);
    }
    if (launch_.maps.empty()) arguments.resize(128);
    unsigned tile_counter = 0;
    void* const counter = &tile_counter;
    for (int tensor : launch_.pointers)
      append(tensor == kTileCounter ? &counter : &addresses[tensor], 8);
    if (launch_.pointers.empty()) arguments.resize(arguments.size() + 8);
    append(launch_.numbers.data(), 4 * launch_.numbers.size());
    arguments.resize(arguments.size() + 256);  // the struct's own padding
    std::unique_ptr<char, void (*)(void*)> aligned(
        static_cast<char*>(std::aligned_alloc(64, (arguments.size() + 63) / 64 * 64)), std::free);
    std::memcpy(aligned.get(), arguments.data(), arguments.size());
    HostThreads threads{.threads = launch_.threads,
                        .blocks = launch_.grid,
                        .cluster = launch_.cluster,
                        .wait_while = &HostBlock::wait_while};
    for (unsigned first = 0; first < threads.blocks; first += threads.cluster) {
      threads.block = first;
      begin_(&threads);
      HostBlock::run(threads, run_, aligned.get());
      for (unsigned cta = 0; cta < threads.cluster; ++cta) {
        threads.block = first + cta;
        end_();
      }
    }
    if (tile_counter != 0) throw std::runtime_error("a launch leaves its counter of tiles");
  }

 private:
  // The loader knows libraries by their names.
  static void* compile(const KernelLaunch& launch, const std::string& name) {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("coda_host_kernel_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    const std::string stem = (folder / name).string();
    // Of a kernel with a product a cluster begins with shared memory that nobody has written, and
    // a block ends when its last stores have left.
    const auto has = [&](const char* text) {
      return launch.source.find(text) != std::string::npos;
    };
    const bool is_product = has("/program_kernel.cuh\"") || has("/attention/");
    std::ofstream(stem + ".cc") << launch.source << R"(
namespace coda::device::precise {}
using namespace coda::device;
using namespace coda::device::precise;
extern "C" void host_run(const void* arguments) {
  )" << launch.function << R"((*static_cast<const Arguments*>(arguments));
}
extern "C" void host_begin(HostThreads* threads) {
  begin_cluster(threads);
)" << (is_product ? "  begin_shared_memory();\n" : "")
                                << "}\nextern \"C\" void host_end() {\n"
                                << (is_product ? "  store_wait_read<0>();\n" : "")
                                << "  if (host_block_end != nullptr) host_block_end();\n}\n";
    const std::string command = std::string(CODA_HOST_KERNEL_COMPILER) + " -shared -include " +
                                (is_product ? "product_kernel.cuh " : "plain_kernel.cuh ") + stem +
                                ".cc -o " + stem + ".so 2> " + stem + ".log";
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
  void (*begin_)(HostThreads*) = nullptr;
  void (*end_)() = nullptr;
};

}  // namespace coda::gpu
