// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "coda/error.h"
#include "coda/messages.h"

namespace coda::tokenizer {
namespace {

constexpr size_t kStepsOfAMatch = 10'000'000;  // PCRE2's own limit
constexpr size_t kStepsOfAByte = 16;

// White space as Unicode has it. PCRE2's own \s has U+180E too.
constexpr std::string_view kSpaces = "\\t-\\r \\x{85}\\p{Z}";

std::string message_of(int error) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

std::string translated(std::string_view regex, const std::string& source) {
  const auto refuse = [&](std::string_view part) {
    throw Error(source + ": the regular expression " + in_quotes(regex) + " has " +
                std::string(part) +
                ", which is not supported (give token ids made with Python's tokenizers)");
  };
  std::string result;
  bool is_class = false;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    const char next = i + 1 < regex.size() ? regex[i + 1] : '\0';
    if (c == '\\') {
      ++i;
      if (next == 's') {
        result += is_class ? std::string(kSpaces) : "[" + std::string(kSpaces) + "]";
      } else if (next == 'S' && !is_class) {
        result += "[^" + std::string(kSpaces) + "]";
      } else {
        if (std::string_view("SwWbBChHRXkgKGQEZ").find(next) != std::string_view::npos)
          refuse(std::string{c, next} + (is_class ? " between brackets" : ""));
        // With its name or number: \p{L}.
        const size_t end = i + 1 < regex.size() && regex[i + 1] == '{' ? regex.find('}', i) : i;
        if (end == std::string_view::npos) refuse("a '{' that is not closed");
        (result += c) += regex.substr(i, end - i + 1);
        i = end;
      }
      continue;
    }
    if (is_class) {
      if (c == '[' || (c == '&' && next == '&')) refuse("a class of classes");
      if (c == ']') is_class = false;
    } else if (c == '[') {
      is_class = true;
      if (next == ']') refuse("a bracket that closes at once");
    } else if (c == '(' && next == '*') {
      refuse("a '(*'");
    } else if (c == '^' || c == '$') {
      refuse(std::string{c});
    } else if (c == '}' && next == '+') {
      refuse("a count with '+' behind it");
    }
    result += c;
  }
  return result;
}

}  // namespace

Pattern::Pattern(const std::string& regex, unsigned options, const std::string& source)
    : source_(source) {
  int error = 0;
  size_t place = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                    PCRE2_UTF | PCRE2_NO_UTF_CHECK | options, &error, &place, nullptr);
  require(code != nullptr, source + ": the regular expression " + in_quotes(regex) +
                               " is not understood: " + message_of(error) +
                               " (give token ids made with Python's tokenizers)");
  code_ = {code, [](void* made) { pcre2_code_free(static_cast<pcre2_code*>(made)); }};
  uint32_t may_be_empty = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &may_be_empty);
  require(may_be_empty == 0, source + ": the regular expression " + in_quotes(regex) +
                                 " matches where there is nothing, which is not supported (give "
                                 "token ids made with Python's tokenizers)");
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is none, matching is slower
}

Pattern Pattern::of_regex(std::string_view regex, const std::string& source) {
  return {translated(regex, source), PCRE2_UCP, source};
}

Pattern Pattern::of_text(std::string_view text, const std::string& source) {
  return {std::string(text), PCRE2_LITERAL, source};
}

bool Pattern::find(std::string_view text, size_t from, Range& match) const {
  using Data = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
  using Context = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;
  thread_local const Data data(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  thread_local const Context context(pcre2_match_context_create(nullptr), pcre2_match_context_free);
  // A run of white space of any length is one match, which goes back over all of it.
  const size_t limit = kStepsOfAMatch + kStepsOfAByte * (text.size() - from);
  pcre2_set_match_limit(context.get(), static_cast<uint32_t>(std::min(limit, size_t{UINT32_MAX})));
  const int found = pcre2_match(static_cast<const pcre2_code*>(code_.get()),
                                reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                PCRE2_NO_UTF_CHECK, data.get(), context.get());
  if (found == PCRE2_ERROR_NOMATCH) return false;
  require(found >= 0, source_ + ": a regular expression gave up on the text: " + message_of(found) +
                          " (give shorter texts)");
  const size_t* ends = pcre2_get_ovector_pointer(data.get());
  match = {ends[0], ends[1]};
  return true;
}

}  // namespace coda::tokenizer
