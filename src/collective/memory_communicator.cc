// SPDX-License-Identifier: Apache-2.0
// Each process has a slot in the shared memory. In each round all processes show a piece in their
// slots, wait at a barrier, read the others' slots, and wait again.
#include "collective/memory_communicator.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstring>

#include "collective/host_communicator.h"
#include "collective/meeting.h"

namespace coda {
namespace {

constexpr int64_t kSlot = 4 << 20;   // bytes that a process shows in one round
constexpr int64_t kSlotHead = 4096;  // in front of the slots

// At the start of the memory; all zeros before the first exchange.
struct Head {
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> phase;                              // of the barrier
  std::atomic<int> numbers[(kSlotHead - 8) / sizeof(int)];  // each process's exchange number
};
static_assert(sizeof(Head) == kSlotHead);
constexpr int kMostProcesses = static_cast<int>((kSlotHead - 8) / sizeof(int));

int64_t bytes_for(int world) { return kSlotHead + world * kSlot; }

// Waits across processes, which std::atomic's own wait does not support.
void wait_while(std::atomic<uint32_t>& word, uint32_t value) {
  while (word.load(std::memory_order_acquire) == value)
    ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value, nullptr, nullptr,
              0);
}
void wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
            0);
}

class MemoryCommunicator : public HostCommunicator {
 public:
  explicit MemoryCommunicator(const ProcessPlace& place) {
    rank_ = place.rank;
    world_ = place.world;
    struct stat state = {};
    const bool is_there = ::fstat(place.shared_memory, &state) == 0;
    require(is_there && state.st_size == bytes_for(world_),
            "CODA_SHARED_MEMORY is " + std::to_string(place.shared_memory) +
                ", which is no memory for " + std::to_string(world_) +
                " processes (coda train --processes sets it)");
    void* const memory = ::mmap(nullptr, static_cast<size_t>(state.st_size), PROT_READ | PROT_WRITE,
                                MAP_SHARED, place.shared_memory, 0);
    require(memory != MAP_FAILED, "the memory that the processes share cannot be mapped");
    memory_ = static_cast<std::byte*>(memory);
    Socket listening;
    if (rank_ == 0) listening = listen_for_others(place);
    rendezvous_.emplace(place, std::move(listening), "CPUs of one machine", "");
  }
  ~MemoryCommunicator() override {
    rendezvous_.reset();
    ::munmap(memory_, static_cast<size_t>(bytes_for(world_)));
  }

 private:
  void start(int number) override { head().numbers[rank_] = number_ = number; }

  void add_up(float* values, int64_t block) override {
    const int64_t piece = kSlot / static_cast<int64_t>(sizeof(float)) / world_;
    for (int64_t begin = 0; begin < block; begin += piece) {
      const int64_t count = std::min(piece, block - begin);
      const size_t bytes = static_cast<size_t>(count) * sizeof(float);
      for (int to = 0; to < world_; ++to)
        std::memcpy(floats(rank_) + to * piece, values + to * block + begin, bytes);
      wait_for_pieces();
      float* const own = values + rank_ * block + begin;
      std::memcpy(own, floats(0) + rank_ * piece, bytes);
      for (int from = 1; from < world_; ++from) {
        const float* const theirs = floats(from) + rank_ * piece;
        for (int64_t i = 0; i < count; ++i) own[i] += theirs[i];
      }
      wait_for_all();
    }
  }

  void gather(std::byte* blocks, int64_t bytes) override {
    for (int64_t begin = 0; begin < bytes; begin += kSlot) {
      const auto count = static_cast<size_t>(std::min(kSlot, bytes - begin));
      std::memcpy(slot(rank_), blocks + rank_ * bytes + begin, count);
      wait_for_pieces();
      for (int from = 0; from < world_; ++from)
        if (from != rank_) std::memcpy(blocks + from * bytes + begin, slot(from), count);
      wait_for_all();
    }
  }

  Head& head() const { return *reinterpret_cast<Head*>(memory_); }
  std::byte* slot(int rank) const { return memory_ + kSlotHead + rank * kSlot; }
  float* floats(int rank) const { return reinterpret_cast<float*>(slot(rank)); }

  void wait_for_all() {
    const uint32_t phase = head().phase;
    if (head().arrived.fetch_add(1) + 1 == static_cast<uint32_t>(world_)) {
      head().arrived = 0;
      head().phase = phase + 1;
      wake_all(head().phase);
    } else {
      wait_while(head().phase, phase);
    }
  }

  // Waits until all have shown a piece. If another process is in a different exchange, this never
  // returns; the announcements then end the run (exchange_log.h).
  void wait_for_pieces() {
    wait_for_all();
    for (int rank = 0; rank < world_; ++rank)
      while (head().numbers[rank] != number_) ::pause();
  }

  std::byte* memory_ = nullptr;
  int number_ = 0;  // of this process's exchange
};

}  // namespace

int make_shared_memory(int world) {
  require(world <= kMostProcesses, "at most " + std::to_string(kMostProcesses) +
                                       " processes share memory, not " + std::to_string(world));
  const int descriptor = ::memfd_create("coda", 0);
  require(descriptor >= 0 && ::ftruncate(descriptor, bytes_for(world)) == 0,
          "the system gives no memory for processes to share");
  return descriptor;
}

std::unique_ptr<Communicator> join_over_memory(const ProcessPlace& place) {
  return std::make_unique<MemoryCommunicator>(place);
}

}  // namespace coda
