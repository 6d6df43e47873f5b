// SPDX-License-Identifier: Apache-2.0
// Scratch memory shared by a backend's kernels: sized when kernels are prepared, lent while one
// runs. Kernels run one after another in a plan, so that one block serves them all; concurrent runs
// get blocks of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/rounding.h"

namespace coda::cpu {

class Workspace {
 public:
  // Memory of at least the asked size, aligned to a cache line; given back when destroyed.
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

  // Makes sure that one block of this size is there.
  void reserve(int64_t bytes);
  int64_t bytes() const;

 private:
  Lease::Block take(int64_t bytes);
  void give_back(Lease::Block block);

  mutable std::mutex mutex_;
  std::vector<Lease::Block> free_;
  int64_t lent_ = 0;
};

// Lays out pieces of scratch memory one after another, each on a cache line of its own.
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
