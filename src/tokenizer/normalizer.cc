// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

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

bool is_mark(utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class != 0; }

// utf8proc's own function orders combining marks in quadratic time.
std::string line_in_normal_form(utf8proc_option_t options, std::string_view line) {
  std::vector<utf8proc_int32_t> points;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(line.data());
  for (size_t at = 0; at < line.size();) {
    utf8proc_int32_t point = 0;
    const auto size =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(line.size() - at), &point);
    invariant(size > 0, "utf8proc refused valid UTF-8");
    at += static_cast<size_t>(size);
    constexpr utf8proc_ssize_t kMost = 32;  // of one code point: 18 (U+FDFA)
    const size_t before = points.size();
    points.resize(before + kMost);
    int boundary = 0;
    const auto count = utf8proc_decompose_char(
        point, points.data() + before, kMost,
        static_cast<utf8proc_option_t>(options | UTF8PROC_DECOMPOSE), &boundary);
    invariant(count >= 0 && count <= kMost, "utf8proc's decomposition of a code point");
    points.resize(before + static_cast<size_t>(count));
  }
  for (auto first = points.begin(); first != points.end();) {
    first = std::find_if(first, points.end(), is_mark);
    const auto last = std::find_if_not(first, points.end(), is_mark);
    std::stable_sort(first, last, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return utf8proc_get_property(a)->combining_class < utf8proc_get_property(b)->combining_class;
    });
    first = last;
  }
  auto count = static_cast<utf8proc_ssize_t>(points.size());
  if (options & UTF8PROC_COMPOSE) count = utf8proc_normalize_utf32(points.data(), count, options);
  std::string result;
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    std::array<utf8proc_uint8_t, 4> letter{};
    const auto size = utf8proc_encode_char(points[static_cast<size_t>(i)], letter.data());
    result.append(reinterpret_cast<const char*>(letter.data()), static_cast<size_t>(size));
  }
  return result;
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
    result += line_in_normal_form(options, line);
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
