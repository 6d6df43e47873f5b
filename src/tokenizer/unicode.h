// SPDX-License-Identifier: Apache-2.0
// Properties and normal forms of code points, as in the package `tokenizers`. The package uses
// several versions of Unicode: 16.0 in regular expressions, 9.0 in normal forms, 17.0 in the
// pre-tokenizer Digits. scripts/unicode_tables.py queries the package for every code point.
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

// unicode_tables.cc documents the format of each table.
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

// The code points of a general category ("Lu", "L", "Letter"), of a script ("Han"), or with another
// property that regular expressions can name. Case, blanks, '-' and '_' in the name are ignored.
// Returns nothing if the name is not known.
std::optional<PointSet> points_with(std::string_view property);
// The code points that the pre-tokenizer Digits treats as digits.
PointSet numeric_points();

struct NormalForm {
  bool composes = false;    // NFC, NFKC
  bool compatible = false;  // NFKC, NFKD
};

// Normalizes valid UTF-8 in linear time, except for the sorting of marks.
std::string in_normal_form(NormalForm form, std::string_view text);

}  // namespace coda::tokenizer
