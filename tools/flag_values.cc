// SPDX-License-Identifier: Apache-2.0
#include "flag_values.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

namespace coda::tools {

CLI::Validator number_within(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& word) {
        char* end = nullptr;
        const double value = std::strtod(word.c_str(), &end);
        const bool is_number = !word.empty() && *end == '\0';
        if (is_number && value >= low && value <= high) return std::string();
        return fmt::format("must be a number from {} to {}, not '{}'", low, high, word);
      },
      "");
}

CLI::Validator whole_number() {
  return CLI::Validator(
      [](const std::string& word) {
        uint64_t value = 0;
        const char* end = word.data() + word.size();
        const auto [stop, error] = std::from_chars(word.data(), end, value);
        if (error == std::errc() && stop == end) return std::string();
        return fmt::format("must be a whole number from 0 to 2^64 - 1, not '{}'", word);
      },
      "");
}

}  // namespace coda::tools
