// SPDX-License-Identifier: Apache-2.0
// Memory for arenas and scratch: aligned to cache lines (64 bytes); large pieces lie on huge pages
// where the system offers them, because a matrix read by columns otherwise misses the TLB at every
// row. Not initialised: who allocates decides which thread touches it first.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace coda {

inline constexpr size_t kCacheLine = 64;

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes);  // throws Error: how much was wanted

  std::byte* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace coda
