// SPDX-License-Identifier: Apache-2.0
// What is known of code points: their properties and normal forms, as the package `tokenizers` has
// them. Its parts follow different versions of Unicode: 16.0 in regular expressions, 9.0 in normal
// forms, 17.0 in the pre-tokenizer Digits. scripts/unicode_tables.py asks it for every code point.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tokenizer/point_set.h"

namespace coda::tokenizer {

struct NamedProperty {
  std::string_view name;
  std::span<const uint32_t> edges;
};

// unicode_tables.cc says what the numbers of each are.
struct UnicodeTables {
  std::span<const std::string_view> category_names;
  std::span<const uint32_t> category_runs;
  std::span<const std::string_view> script_names;
  std::span<const uint32_t> script_runs;
  std::span<const NamedProperty> properties;
  std::span<const uint32_t> numeric;
  std::span<const uint32_t> mark_runs;
  std::span<const uint32_t> decompositions;
  std::span<const uint32_t> compositions;
};

const UnicodeTables& unicode_tables();

// The code points of a general category ("Lu", "L", "Letter"), a script ("Han") or one of the other
// properties that regular expressions name; case, blanks, '-' and '_' do not matter. None if it is
// not known.
std::optional<PointSet> points_with(std::string_view property);
// What the pre-tokenizer Digits takes as digits.
PointSet numeric_points();

struct NormalForm {
  bool composes = false;    // NFC, NFKC
  bool compatible = false;  // NFKC, NFKD
};

// Of valid UTF-8, in linear time but for the sorting of marks.
std::string in_normal_form(NormalForm form, std::string_view text);

}  // namespace coda::tokenizer
