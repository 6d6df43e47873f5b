// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>

#include "fuzz/targets.h"

namespace coda::fuzz {

std::string changed(const Target& target, std::span<const std::string> inputs, uint64_t number) {
  std::mt19937_64 random(number);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  std::string bytes = inputs[below(inputs.size())];
  for (size_t changes = 1 + below(5); changes > 0; --changes) {
    const size_t at = below(bytes.size() + 1);
    const size_t length = below(4) == 0 ? below(64) : below(4);
    switch (below(8)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random());
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
        break;
      case 2: bytes.erase(at, length); break;
      case 3:
        if (below(8) == 0) bytes.resize(at);
        break;
      case 4: bytes.insert(at, bytes.substr(below(bytes.size() + 1), length)); break;
      case 5: {  // inserts a piece of another input
        const std::string& other = inputs[below(inputs.size())];
        bytes.insert(at, other.substr(below(other.size() + 1), below(200)));
        break;
      }
      default:
        if (target.words.empty()) break;
        bytes.replace(at, below(2) == 0 ? 0 : std::min(length, bytes.size() - at),
                      target.words[below(target.words.size())]);
        break;
    }
  }
  return bytes;
}

}  // namespace coda::fuzz
