// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <algorithm>

#include "tokenizer/growth.h"
#include "tokenizer/pattern_setting.h"
#include "tokenizer/unicode.h"

namespace coda::tokenizer {
Normalizer make_normalizer(const Component& component) {
  constexpr std::pair<const char*, NormalForm> kForms[] = {
      {"NFC", {.composes = true}},
      {"NFD", {}},
      {"NFKC", {.composes = true, .compatible = true}},
      {"NFKD", {.compatible = true}},
  };
  Normalizer steps;
  Growth growth;
  for (const Component& part : flattened(component, "normalizers")) {
    const auto form = std::ranges::find_if(kForms, [&](const auto& f) { return part.is(f.first); });
    if (form != std::end(kForms)) {
      steps.emplace_back(
          [form = form->second](std::string&& text) { return in_normal_form(form, text); });
    } else if (part.is("Prepend")) {
      growth.add(part, 1, 1 + part.text("prepend").size());
      steps.emplace_back([front = part.text("prepend")](std::string&& text) {
        return text.empty() ? std::move(text) : front + text;
      });
    } else if (part.is("Replace")) {
      growth.add_replacement(part);
      steps.emplace_back([pattern = pattern_setting(part), content = part.text("content")](
                             std::string&& text) { return replaced(pattern, content, text); });
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
