// SPDX-License-Identifier: Apache-2.0
// Numbers are normalised, so that equal values in different notation compare equal.
#include "compared_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

namespace coda::tools {
namespace {

constexpr std::string_view kOfThisProcess[] = {"help", "device", "gpus", "processes"};
constexpr std::string_view kPaths[] = {"data",   "ids",       "out",    "init",
                                       "config", "tokenizer", "profile"};

// Makes 1e-3 and 0.001 equal.
std::string as_number(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? fmt::format("{}", value) : text;
}

}  // namespace

Settings compared_flags(const CLI::App& command) {
  Settings settings;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_single_name();
    if (std::ranges::count(kOfThisProcess, name) > 0) continue;
    const bool is_given = option->count() > 0;
    const bool is_path = std::ranges::count(kPaths, name) > 0;
    const std::string value = is_given ? option->results().back() : option->get_default_str();
    settings.push_back({"--" + name, is_path ? (is_given ? "given" : "") : as_number(value)});
  }
  return settings;
}

}  // namespace coda::tools
