// SPDX-License-Identifier: Apache-2.0
// The tables of vocabulary.h.
#include "program/vocabulary.h"

#include <algorithm>
#include <variant>

#include "coda/error.h"
#include "coda/language.h"

namespace coda::program {
namespace {

// The words of the steps that are effects, or of the others, without duplicates.
std::vector<std::string_view> step_words(bool of_effects) {
  std::vector<std::string_view> words;
  for (size_t kind = 0; kind < std::variant_size_v<StepWork>; ++kind) {
    const StepInfo& row = info(static_cast<StepKind>(kind));
    if (is_effect(row.kind) != of_effects) continue;
    for (const std::string_view word : row.words) {
      if (!word.empty() && std::find(words.begin(), words.end(), word) == words.end())
        words.push_back(word);
    }
  }
  return words;
}

}  // namespace

std::optional<Elementwise> operation_by_word(std::string_view word) {
  return word == "where" ? Elementwise::select : elementwise_by_name(word);
}

const std::vector<std::string_view>& type_names() {
  static const auto names = [] {
    std::vector<std::string_view> all;
    for (DType type : kDTypes) all.push_back(coda::name_of(type));
    return all;
  }();
  return names;
}

const std::vector<std::string_view>& effect_words() {
  static const auto words = step_words(true);
  return words;
}

const std::vector<std::string_view>& function_words() {
  static const auto words = [] {
    std::vector<std::string_view> all = step_words(false);
    all.push_back("where");
    for (int op = 0; op < kElementwiseCount; ++op)
      all.push_back(info(static_cast<Elementwise>(op)).name);
    return all;
  }();
  return words;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::optional<DType> dtype_by_name(std::string_view name) {
  for (DType type : kDTypes) {
    if (coda::name_of(type) == name) return type;
  }
  return std::nullopt;
}

bool is_identifier(std::string_view text) {
  return !text.empty() && is_letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

bool is_reserved(std::string_view word) {
  return word == "_" || word == "inf" || word == "nan" || step_by_word(word).has_value() ||
         operation_by_word(word).has_value();
}

std::string quoted_name(std::string_view name) {
  const bool plain = !name.empty() && is_letter(name[0]) && name.back() != '.' &&
                     !name.ends_with(".T") && name.find("..") == std::string_view::npos &&
                     std::all_of(name.begin(), name.end(),
                                 [](char c) { return is_letter(c) || is_digit(c) || c == '.'; });
  return plain ? std::string(name) : "\"" + std::string(name) + "\"";
}

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
}

}  // namespace coda::program

namespace coda {

Language language() {
  Language all;
  all.functions = program::step_words(false);
  for (int op = 0; op < kElementwiseCount; ++op)
    all.operations.push_back(info(static_cast<Elementwise>(op)).name);
  all.effects = program::effect_words();
  for (int kind = 0; kind < kPartialKindCount; ++kind)
    all.reductions.push_back(info(static_cast<PartialKind>(kind)).name);
  all.types = program::type_names();
  return all;
}

}  // namespace coda
