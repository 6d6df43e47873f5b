// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "coda/error.h"
#include "tokenizer/pattern_setting.h"

namespace coda::tokenizer {
namespace {

std::string replaced(const Pattern& pattern, const std::string& content, std::string&& text) {
  Range match;
  if (!pattern.find(text, 0, match)) return std::move(text);
  std::string result;
  size_t done = 0;
  do {
    result.append(text, done, match.begin - done) += content;
    done = match.end;
  } while (pattern.find(text, done, match));
  return result.append(text, done);
}

// Line by line, so that little memory is taken: nothing is joined across the end of a line. ASCII
// is as it is in every form.
std::string in_normal_form(utf8proc_option_t options, std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    if (std::ranges::all_of(line, [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
      result += line;
      continue;
    }
    utf8proc_uint8_t* made = nullptr;
    const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(line.data()),
                                     static_cast<utf8proc_ssize_t>(line.size()), &made, options);
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, std::free);
    invariant(length >= 0, "utf8proc refused valid UTF-8");
    result.append(reinterpret_cast<const char*>(made), static_cast<size_t>(length));
  }
  return result;
}

}  // namespace

Normalizer make_normalizer(const Component& component) {
  constexpr std::pair<const char*, int> kForms[] = {
      {"NFC", UTF8PROC_COMPOSE},
      {"NFD", UTF8PROC_DECOMPOSE},
      {"NFKC", UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
      {"NFKD", UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
  };
  Normalizer steps;
  for (const Component& part : flattened(component, "normalizers")) {
    const auto form = std::ranges::find_if(kForms, [&](const auto& f) { return part.is(f.first); });
    if (form != std::end(kForms)) {
      const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form->second);
      steps.emplace_back([options](std::string&& text) { return in_normal_form(options, text); });
    } else if (part.is("Prepend")) {
      steps.emplace_back([front = part.text("prepend")](std::string&& text) {
        return text.empty() ? std::move(text) : front + text;
      });
    } else if (part.is("Replace")) {
      steps.emplace_back(
          [pattern = pattern_setting(part), content = part.text("content")](std::string&& text) {
            return replaced(pattern, content, std::move(text));
          });
    } else {
      part.refuse();
    }
  }
  return steps;
}

std::string normalized(const Normalizer& normalizer, std::string_view text) {
  std::string result(text);
  for (const auto& step : normalizer) result = step(std::move(result));
  return result;
}

}  // namespace coda::tokenizer
