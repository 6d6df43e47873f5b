// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unicode.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include "tokenizer/utf8.h"

namespace coda::tokenizer {
namespace {

// Constants of the standard's Hangul composition: chapter 3.12.
constexpr uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr uint32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr uint32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

std::string folded(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    result += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return result;
}

// The code points of all runs that have one of the values.
PointSet points_of(std::span<const uint32_t> runs, std::span<const uint32_t> values) {
  std::vector<uint32_t> edges;
  for (const uint32_t run : runs) {
    const bool is_in = std::ranges::find(values, run & 0xFF) != values.end();
    if (is_in != (edges.size() % 2 == 1)) edges.push_back(run >> 8);
  }
  return PointSet(std::move(edges));
}

// Long names of categories.
const std::map<std::string, std::string>& category_aliases() {
  static const std::map<std::string, std::string> kAliases{
      {"letter", "l"},
      {"casedletter", "lc"},
      {"uppercaseletter", "lu"},
      {"lowercaseletter", "ll"},
      {"titlecaseletter", "lt"},
      {"modifierletter", "lm"},
      {"otherletter", "lo"},
      {"mark", "m"},
      {"nonspacingmark", "mn"},
      {"spacingmark", "mc"},
      {"enclosingmark", "me"},
      {"number", "n"},
      {"decimalnumber", "nd"},
      {"letternumber", "nl"},
      {"othernumber", "no"},
      {"punctuation", "p"},
      {"connectorpunctuation", "pc"},
      {"dashpunctuation", "pd"},
      {"openpunctuation", "ps"},
      {"closepunctuation", "pe"},
      {"initialpunctuation", "pi"},
      {"finalpunctuation", "pf"},
      {"otherpunctuation", "po"},
      {"symbol", "s"},
      {"mathsymbol", "sm"},
      {"currencysymbol", "sc"},
      {"modifiersymbol", "sk"},
      {"othersymbol", "so"},
      {"separator", "z"},
      {"spaceseparator", "zs"},
      {"lineseparator", "zl"},
      {"paragraphseparator", "zp"},
      {"other", "c"},
      {"control", "cc"},
      {"format", "cf"},
      {"privateuse", "co"},
      {"unassigned", "cn"},
      {"digit", "nd"},
      {"alpha", "alphabetic"},
      {"lower", "lowercase"},
      {"upper", "uppercase"},
      {"whitespace", "space"},
  };
  return kAliases;
}

// The tables as hash maps for lookup, built once.
struct Forms {
  struct Parts {
    const uint32_t* first = nullptr;
    uint32_t count = 0;
  };
  std::unordered_map<uint32_t, Parts> canonical;
  std::unordered_map<uint32_t, Parts> compatible;
  std::unordered_map<uint64_t, uint32_t> composed;

  Forms() {
    const std::span<const uint32_t> numbers = unicode_tables().decompositions;
    for (size_t i = 0; i < numbers.size();) {
      const uint32_t head = numbers[i++];
      const Parts parts{&numbers[i], head & 0x7F};
      (head & 0x80 ? compatible : canonical)[head >> 8] = parts;
      i += parts.count;
    }
    const std::span<const uint32_t> triples = unicode_tables().compositions;
    for (size_t i = 0; i < triples.size(); i += 3)
      composed[uint64_t{triples[i]} << 32 | triples[i + 1]] = triples[i + 2];
  }

  void decompose(uint32_t point, bool is_compatible, std::vector<uint32_t>& points) const {
    if (point < 0x80) return points.push_back(point);
    if (const uint32_t place = point - kSyllables; place < kSyllableCount) {
      points.push_back(kLeads + place / (kVowelCount * kTailCount));
      points.push_back(kVowels + place / kTailCount % kVowelCount);
      if (place % kTailCount != 0) points.push_back(kTails + place % kTailCount);
      return;
    }
    auto found = compatible.end();
    if (is_compatible) found = compatible.find(point);
    if (found == compatible.end()) {
      found = canonical.find(point);
      if (found == canonical.end()) return points.push_back(point);
    }
    points.insert(points.end(), found->second.first, found->second.first + found->second.count);
  }

  // Returns 0 if the two do not compose.
  uint32_t compose(uint32_t first, uint32_t second) const {
    if (second < 0x300) return 0;
    if (first - kLeads < kLeadCount && second - kVowels < kVowelCount)
      return kSyllables + ((first - kLeads) * kVowelCount + second - kVowels) * kTailCount;
    if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTailCount == 0 &&
        second - kTails - 1 < kTailCount - 1)
      return first + second - kTails;
    const auto found = composed.find(uint64_t{first} << 32 | second);
    return found == composed.end() ? 0 : found->second;
  }
};

// The canonical combining class; 0 if the code point is not a mark.
uint32_t order_of(uint32_t point) {
  if (point < 0x300) return 0;
  const std::span<const uint32_t> runs = unicode_tables().mark_runs;
  return *(std::ranges::upper_bound(runs, point << 8 | 0xFF) - 1) & 0xFF;
}

struct Letter {
  uint32_t point = 0;
  uint32_t order = 0;
};

// Composes each letter with the marks after it that are not blocked: chapter 3.11 of the standard.
void compose(const Forms& forms, std::vector<Letter>& letters) {
  size_t count = 0;         // number of letters that are finished
  size_t start = SIZE_MAX;  // position of the last letter that is not a mark
  uint32_t last_order = 0;  // combining class of the last mark after `start` that did not compose
  for (const Letter letter : letters) {
    const bool is_next = start != SIZE_MAX && count == start + 1;
    if (start != SIZE_MAX && (is_next || last_order < letter.order)) {
      if (const uint32_t joined = forms.compose(letters[start].point, letter.point)) {
        letters[start].point = joined;
        continue;
      }
    }
    if (letter.order == 0) start = count;
    last_order = letter.order;
    letters[count++] = letter;
  }
  letters.resize(count);
}

std::string line_in_normal_form(const Forms& forms, NormalForm form, std::string_view line) {
  std::vector<uint32_t> points;
  for (size_t at = 0; at < line.size(); at += length_of(line[at]))
    forms.decompose(code_point(line.substr(at)), form.compatible, points);
  std::vector<Letter> letters;
  letters.reserve(points.size());
  for (const uint32_t point : points) letters.push_back({point, order_of(point)});
  const auto is_mark = [](const Letter& letter) { return letter.order != 0; };
  for (auto first = letters.begin(); first != letters.end();) {
    first = std::find_if(first, letters.end(), is_mark);
    const auto last = std::find_if_not(first, letters.end(), is_mark);
    std::stable_sort(first, last,
                     [](const Letter& a, const Letter& b) { return a.order < b.order; });
    first = last;
  }
  if (form.composes) compose(forms, letters);
  std::string result;
  for (const Letter& letter : letters) result += utf8(letter.point);
  return result;
}

}  // namespace

std::optional<PointSet> points_with(std::string_view property) {
  const UnicodeTables& tables = unicode_tables();
  std::string name = folded(property);
  if (const auto alias = category_aliases().find(name); alias != category_aliases().end())
    name = alias->second;
  if (name == "any") return PointSet::range(0, kCodePoints - 1);
  if (name == "ascii") return PointSet::range(0, 0x7F);
  if (name == "lc") return *points_with("lu") | *points_with("ll") | *points_with("lt");
  if (name == "space")
    return PointSet::range('\t', '\r') | PointSet::point(0x85) | *points_with("z");
  if (name == "alnum") return *points_with("alphabetic") | *points_with("nd");
  if (name == "word") {  // of the category "no", Oniguruma includes only the characters of Latin-1
    return *points_with("alphabetic") | *points_with("m") | *points_with("nd") |
           *points_with("pc") | (*points_with("no") & PointSet::range(0, 0xFF));
  }
  if (name == "xdigit")
    return PointSet::range('0', '9') | PointSet::range('A', 'F') | PointSet::range('a', 'f');
  std::vector<uint32_t> values;
  for (uint32_t i = 0; i < tables.category_names.size(); ++i) {
    const std::string category = folded(tables.category_names[i]);
    if (category == name || category.substr(0, 1) == name) values.push_back(i);
  }
  if (!values.empty()) return points_of(tables.category_runs, values);
  for (uint32_t i = 0; i < tables.script_names.size(); ++i)
    if (folded(tables.script_names[i]) == name)
      return points_of(tables.script_runs, std::span(&i, 1));
  for (const NamedProperty& known : tables.properties)
    if (folded(known.name) == name) return PointSet({known.edges.begin(), known.edges.end()});
  return std::nullopt;
}

PointSet numeric_points() {
  const std::span<const uint32_t> edges = unicode_tables().numeric;
  return PointSet({edges.begin(), edges.end()});
}

// Works line by line to need little memory: no composition crosses the end of a line. ASCII text is
// the same in every form.
std::string in_normal_form(NormalForm form, std::string_view text) {
  static const Forms kForms;
  std::string result;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    if (std::ranges::all_of(line, [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
      result += line;
    } else {
      result += line_in_normal_form(kForms, form, line);
    }
  }
  return result;
}

}  // namespace coda::tokenizer
