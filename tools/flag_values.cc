// SPDX-License-Identifier: Apache-2.0
// Validators for CLI11; each message says which values are allowed.
#include "flag_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "coda/eight_bits.h"
#include "coda/error.h"
#include "coda/messages.h"
#include "coda/recompute.h"

namespace coda::tools {

CLI::Validator number_within(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& word) {
        char* end = nullptr;
        const double value = std::strtod(word.c_str(), &end);
        const bool is_number = !word.empty() && *end == '\0';
        if (is_number && value >= low && value <= high) return std::string();
        return fmt::format("must be a number from {} to {}, not {}", low, high, in_quotes(word));
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
        return fmt::format("must be a whole number from 0 to 2^64 - 1, not {}", in_quotes(word));
      },
      "");
}

CLI::Validator type_or_recipe(std::vector<std::string> types) {
  std::ranges::move(eight_bits_names(), std::back_inserter(types));
  return CLI::IsMember(types);
}

void read_decimal_numbers(CLI::App& app) {
  const CLI::Validator decimal(
      [](std::string& word) {
        const bool is_negative = word.starts_with('-');
        const size_t digits = is_negative || word.starts_with('+') ? 1 : 0;
        const bool is_whole = word.size() > digits &&
                              word.find_first_not_of("0123456789", digits) == std::string::npos;
        if (!is_whole) return "must be a whole number, not " + in_quotes(word);
        const size_t first = std::min(word.find_first_not_of('0', digits), word.size() - 1);
        word = (is_negative ? "-" : "") + word.substr(first);
        return std::string();
      },
      "");
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT") || type.starts_with("UINT")) option->transform(decimal);
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    read_decimal_numbers(*command);
  }
}

DType storage_type(const std::string& name) { return name == "fp32" ? DType::f32 : DType::bf16; }

CLI::Option* add_fp8_except_flag(CLI::App& command, std::string& value) {
  return command
      .add_option("--fp8-except", value,
                  "With GEMMs in 8 bits: weights whose GEMMs stay in bf16, separated by commas; * "
                  "stands for any characters: model.layers.0.*,model.layers.15.*")
      ->type_name("NAMES");
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream words(list);
  for (std::string name; std::getline(words, name, ',');)
    if (!name.empty()) names.push_back(name);
  return names;
}

CLI::Option* add_expert_capacity_flag(CLI::App& command, double& value) {
  return command
      .add_option("--expert-capacity", value,
                  "For a mixture of experts: each expert computes only the rows that chose it, at "
                  "most X times the mean number of rows; 0: each computes all rows [0]")
      ->check(number_within(0, 1e6));
}

CLI::Option* add_recompute_flag(CLI::App& command, std::string& value) {
  return command
      .add_option("--recompute", value,
                  "What the backward recomputes: none: only what is faster to recompute than to "
                  "read; norms: everything that needs no GEMM; layer: each layer's forward, from "
                  "the layer's input; layer:8: the forward of the first 8 layers")
      ->check(CLI::Validator(
          [](const std::string& text) -> std::string {
            try {
              recompute_of(text);
              return "";
            } catch (const Error& error) {
              return error.what();
            }
          },
          "none|norms|layer|layer:N"))
      ->capture_default_str();
}

CLI::Option* add_layers_on_host_flag(CLI::App& command, bool& value) {
  return command.add_flag(
      "--layers-on-host", value,
      "With --recompute layer: keep the inputs of layers in the host's memory between forward and "
      "backward, for a GPU that is too small for them; the copies overlap with the computation");
}

}  // namespace coda::tools
