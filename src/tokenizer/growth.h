// SPDX-License-Identifier: Apache-2.0
// Limits how much longer the steps of a tokenizer file may make a text. Without a limit, forty
// steps that each replace "a" by "aa" would make one letter into 2^40.
#pragma once

#include <algorithm>

#include "coda/error.h"
#include "tokenizer/component.h"

namespace coda::tokenizer {

class Growth {
 public:
  // A step that replaces at least `least` bytes by up to `most`. Throws Error if all steps together
  // could make texts too long.
  void add(const Component& step, size_t least, size_t most) {
    constexpr double kMost = 1024;
    times_ *= std::max(1.0, static_cast<double>(most) / static_cast<double>(least));
    require(times_ <= kMost, step.source() +
                                 ": with this step a text may become more than 1024 times as long, "
                                 "which no tokenizer needs (fetch the file again)");
  }

  // A Replace, whose pattern may be one byte long if it is a regular expression.
  void add_replacement(const Component& step) {
    const Component pattern = step.part("pattern");
    const size_t least = pattern.find("Regex") != nullptr ? 1 : pattern.text("String").size();
    add(step, std::max<size_t>(least, 1), step.text("content").size());
  }

 private:
  double times_ = 1;
};

}  // namespace coda::tokenizer
