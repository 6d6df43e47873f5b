// SPDX-License-Identifier: Apache-2.0
// Parses and prints rows, and names classes by the traits of an epilogue that affect its time.
#include "gpu/configure/tuned_rows.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <tuple>

namespace coda::gpu {
namespace {

// Rows beyond this distance are not used; the unit is doublings, summed over all extents.
constexpr double kFarthest = 3.5;

// Quantises the number of operations, so that small changes of a program keep its class.
int step_of(double operations) {
  constexpr double kSteps[] = {2, 6, 12, 20, 32, 48};
  int step = 0;
  for (double limit : kSteps) step += operations > limit ? 1 : 0;
  return step;
}

std::string name_of(const ProgramSizes& sizes, const SpaceAnalysis& space, const SpaceWork& work,
                    bool is_plain) {
  std::string name = "p" + std::to_string(space.parts.size());
  const auto add = [&](const char* what, int64_t count) {
    if (count != 0) name += std::string(" ") + what + std::to_string(count);
  };
  add("h", space.natural_half);
  add("k", space.segments == 1 ? 0 : space.segments);
  add("l", work.shape.word_loads());
  add("e", work.shape.byte_loads);  // of 8-bit values
  add("s", work.shape.stores);
  add("b", std::popcount(work.shape.byte_rows) + std::popcount(work.shape.byte_columns));
  add("m", static_cast<int64_t>(space.maxima.size()));
  const double copies =
      std::popcount(work.shape.byte_rows) + std::popcount(work.shape.byte_columns);
  const double staged =
      work.shape.word_loads() + work.shape.stores + (work.shape.byte_loads + copies) / 2;
  add("d", std::lround(2 * (work.planes - staged)));  // half planes that threads move directly
  if (!is_plain) {
    add("w", step_of(work.operations));
    std::string partials;
    for (int i : space.row_partials) partials += info(sizes.step(i).partial()).letter;
    if (!partials.empty()) name += " r" + partials;
  }
  add("c", static_cast<int64_t>(space.column_partials.size()));
  add("t", static_cast<int64_t>(space.selections.size()));
  return name;
}

// Equal consecutive spaces are written as "3(p1 s1 w1)".
std::string joined(const std::vector<std::string>& spaces) {
  std::string result;
  for (size_t i = 0; i < spaces.size();) {
    size_t end = i + 1;
    while (end < spaces.size() && spaces[end] == spaces[i]) ++end;
    result += (i == 0 ? " " : " + ") +
              (end - i == 1 ? spaces[i] : std::to_string(end - i) + "(" + spaces[i] + ")");
    i = end;
  }
  return result;
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::optional<std::vector<SpaceExtents>> parse_extents(std::string_view text) {
  std::vector<SpaceExtents> extents;
  for (std::string_view one : split(text, '+')) {
    const std::vector<std::string_view> numbers = split(one, 'x');
    if (numbers.size() != 3) return std::nullopt;
    const auto rows = parse_number(numbers[0]);
    const auto columns = parse_number(numbers[1]);
    const auto k = parse_number(numbers[2]);
    if (!rows || !columns || !k) return std::nullopt;
    extents.push_back({*rows, *columns, *k});
  }
  return extents;
}

// `is_whole`: all words are valid choices, and there is at least one.
std::vector<TimedChoice> parse_choices(std::string_view text, bool& is_whole) {
  std::vector<std::string_view> words = split(text, ' ');
  std::erase_if(words, [](std::string_view word) { return word.empty(); });
  std::vector<TimedChoice> choices;
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    double microseconds = 0;
    const std::string_view time = words[i + 1];
    const auto [end, error] = std::from_chars(time.data(), time.data() + time.size(), microseconds);
    if (error != std::errc() || end != time.data() + time.size()) break;
    const std::string code(words[i]);
    std::optional<GemmConfig> parsed = parse_choice(code, sm90());
    if (!parsed) parsed = parse_choice(code, sm80());
    if (parsed && microseconds > 0) choices.push_back({*parsed, microseconds});
  }
  is_whole = !choices.empty() && 2 * choices.size() == words.size();
  return choices;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

double doublings(int64_t a, int64_t b) {
  return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
}

double distance(const std::vector<SpaceExtents>& a, const std::vector<SpaceExtents>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += doublings(a[i].rows, b[i].rows) + doublings(a[i].columns, b[i].columns) +
           doublings(a[i].k, b[i].k);
  }
  return sum / static_cast<double>(a.size());
}

}  // namespace

KernelClass class_of(const ProgramSizes& sizes, const program::TileMap& map,
                     const KernelSpaces& kernel) {
  static constexpr const char* kLayouts[] = {"tn", "nn", "nt", "tt"};
  KernelClass result;
  const SpaceAnalysis& first = kernel.spaces.front();
  std::string layout = kLayouts[static_cast<int>(first.layout)];
  if (!device::is_16_bits(first.element)) {
    layout += first.has_scales ? " 8-bit blocks" : first.promotes ? " 8-bit" : " 8-bit fast";
  }
  const std::vector<SpaceWork> work = work_of(sizes, map, kernel);
  struct Named {
    std::string name;
    SpaceExtents extents;
    size_t space = 0;
  };
  std::vector<Named> all;
  bool only_sums = true;
  for (size_t i = 0; i < kernel.spaces.size(); ++i) {
    const SpaceAnalysis& space = kernel.spaces[i];
    all.push_back({name_of(sizes, space, work[i], false), work[i].extents, i});
    only_sums = only_sums && std::ranges::all_of(space.row_partials, [&](int step) {
                  return sizes.step(step).partial() == PartialKind::sum;
                });
  }
  std::ranges::stable_sort(all, [](const Named& a, const Named& b) {
    const auto& [a_rows, a_columns, a_k] = a.extents;
    const auto& [b_rows, b_columns, b_k] = b.extents;
    return std::tie(a.name, b_rows, b_columns, b_k) < std::tie(b.name, a_rows, a_columns, a_k);
  });
  std::vector<std::string> names;
  std::vector<std::string> plain_names;
  for (const Named& one : all) {
    names.push_back(one.name);
    plain_names.push_back(name_of(sizes, kernel.spaces[one.space], work[one.space], true));
    result.extents.push_back(one.extents);
    result.spaces.push_back(one.space);
  }
  result.name = layout + joined(names);
  if (only_sums) result.plain_name = layout + joined(plain_names);
  return result;
}

std::string text(const std::vector<SpaceExtents>& extents) {
  std::string result;
  for (const SpaceExtents& one : extents) {
    result += (result.empty() ? "" : "+") + std::to_string(one.rows) + "x" +
              std::to_string(one.columns) + "x" + std::to_string(one.k);
  }
  return result;
}

TunedRows::TunedRows(std::string_view text, std::vector<std::string>* left_out) {
  for (std::string_view line : split(text, '\n')) {
    line = trimmed(line);
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string_view> fields = split(line, '|');
    auto extents = fields.size() == 3 ? parse_extents(trimmed(fields[1])) : std::nullopt;
    bool is_whole = false;
    if (extents) {
      std::vector<TimedChoice> choices = parse_choices(fields[2], is_whole);
      if (!choices.empty())
        set({std::string(trimmed(fields[0])), *std::move(extents)}, std::move(choices));
    }
    if (!is_whole && left_out != nullptr) left_out->emplace_back(line);
  }
}

void TunedRows::set(const KernelClass& kernel, std::vector<TimedChoice> choices) {
  std::stable_sort(choices.begin(), choices.end(), [](const TimedChoice& a, const TimedChoice& b) {
    return a.microseconds < b.microseconds;
  });
  std::vector<TunedRow>& rows = rows_[kernel.name];
  const auto same = std::find_if(
      rows.begin(), rows.end(), [&](const TunedRow& row) { return row.extents == kernel.extents; });
  if (same != rows.end()) {
    same->choices = std::move(choices);
  } else {
    rows.push_back({kernel.extents, std::move(choices)});
  }
}

void TunedRows::add(const TunedRows& others) {
  for (const auto& [name, rows] : others.rows_)
    for (const TunedRow& row : rows) set({name, row.extents}, row.choices);
}

const TunedRow* TunedRows::nearest(const KernelClass& kernel) const {
  auto rows = rows_.find(kernel.name);
  if (rows == rows_.end()) rows = rows_.find(kernel.plain_name);
  if (rows == rows_.end()) return nullptr;
  const TunedRow* best = nullptr;
  double least = kFarthest;
  for (const TunedRow& row : rows->second) {
    if (row.extents.size() != kernel.extents.size()) continue;
    const double away = distance(row.extents, kernel.extents);
    if (away < least) {
      least = away;
      best = &row;
    }
  }
  return best;
}

size_t TunedRows::size() const {
  size_t count = 0;
  for (const auto& [name, rows] : rows_) count += rows.size();
  return count;
}

std::string TunedRows::text() const {
  std::string result;
  for (const auto& [name, rows] : rows_) {
    for (const TunedRow& row : rows) {
      result += name + " | " + gpu::text(row.extents) + " |";
      for (const TimedChoice& choice : row.choices) {
        char time[32];
        std::snprintf(time, sizeof time, " %.2f", choice.microseconds);
        result += " " + code(choice.choice) + time;
      }
      result += "\n";
    }
  }
  return result;
}

}  // namespace coda::gpu
