// SPDX-License-Identifier: Apache-2.0
// Memory aligned to cache lines (64 bytes), for arenas and scratch. Not initialised: who allocates
// decides which thread touches it first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace coda {

inline constexpr size_t kCacheLine = 64;

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(
            ::operator new(bytes == 0 ? kCacheLine : bytes, std::align_val_t(kCacheLine)))) {}

  std::byte* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const {
      ::operator delete(data, std::align_val_t(kCacheLine));
    }
  };
  size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace coda
