// SPDX-License-Identifier: Apache-2.0
// Scratch memory shared by the kernels of a backend: its size is fixed when kernels are prepared,
// and a kernel borrows it while it runs. The kernels of a plan run one after another and share one
// block; concurrent runs get separate blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/rounding.h"

namespace coda::cpu {

class Workspace {
 public:
  // A borrowed block of at least the requested size, aligned to a cache line; returned when
  // destroyed.
  class Lease {
   public:
    Lease(Workspace& owner, int64_t bytes);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    char* data() const { return block_.data.get(); }

   private:
    friend class Workspace;
    Workspace& owner_;
    struct Block {
      std::unique_ptr<char, void (*)(void*)> data{nullptr, nullptr};
      int64_t bytes = 0;
    };
    Block block_;
  };

  // Ensures that there is a block of this size.
  void reserve(int64_t bytes);
  int64_t bytes() const;

 private:
  Lease::Block take(int64_t bytes);
  void give_back(Lease::Block block);

  mutable std::mutex mutex_;
  std::vector<Lease::Block> free_;
  int64_t lent_ = 0;
};

// Computes offsets of consecutive pieces of scratch memory, each aligned to a cache line.
class ScratchPieces {
 public:
  int64_t add(int64_t bytes) {
    const int64_t at = size_;
    size_ += round_up(bytes, 64);
    return at;
  }
  int64_t add_floats(int64_t count) { return add(count * 4); }
  int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
};

}  // namespace coda::cpu
