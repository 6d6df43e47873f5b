// SPDX-License-Identifier: Apache-2.0
// The setting 'pattern' of a component: {"String": text} or {"Regex": expression}.
#pragma once

#include "tokenizer/component.h"
#include "tokenizer/pattern.h"

namespace coda::tokenizer {

inline Pattern pattern_setting(const Component& component) {
  const Component pattern = component.part("pattern");
  if (pattern.find("Regex") != nullptr)
    return Pattern::of_regex(pattern.text("Regex"), component.source());
  return Pattern::of_text(pattern.text("String"), component.source());
}

}  // namespace coda::tokenizer
