// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for names that are derived from content: different contents in a cache must
// not get the same name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace coda {

class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  // A text and its length, so that the digest of ("ab", "c") is not that of ("a", "bc").
  void add_field(std::string_view text);
  // 64 hexadecimal digits. Nothing may be added after it.
  std::string digest();

 private:
  void block(const uint8_t* bytes);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> pending_;
  size_t pending_size_ = 0;
  uint64_t total_ = 0;
};

std::string sha256(std::span<const std::byte> bytes);
std::string sha256(std::string_view text);

}  // namespace coda
