// SPDX-License-Identifier: Apache-2.0
// HMAC on top of the project's SHA-256.
#include "collective/proof.h"

#include <sys/random.h>

#include <array>

#include "base/sha256.h"
#include "coda/communicator.h"
#include "coda/error.h"

namespace coda {
namespace {

constexpr size_t kBlock = 64;  // bytes that SHA-256 takes at once
constexpr std::string_view kDigits = "0123456789abcdef";

std::string bytes_of(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(kDigits.find(digits[i]) << 4 | kDigits.find(digits[i + 1]));
  return bytes;
}

}  // namespace

std::string keyed_hash(std::string_view key, std::string_view text) {
  std::string block = key.size() > kBlock ? bytes_of(sha256(key)) : std::string(key);
  block.resize(kBlock, 0);
  const auto hashed = [&](char pad, std::string_view rest) {
    std::string all = block;
    for (char& c : all) c = static_cast<char>(c ^ pad);
    return sha256(all.append(rest));
  };
  return hashed(0x5c, bytes_of(hashed(0x36, text)));
}

bool is_same_hash(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  int different = 0;
  for (size_t i = 0; i < a.size(); ++i) different |= a[i] ^ b[i];
  return different == 0;
}

std::string random_secret() {
  std::array<unsigned char, 32> bytes{};
  require(::getentropy(bytes.data(), bytes.size()) == 0, "the system gives no random numbers");
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace coda
