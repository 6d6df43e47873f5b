// SPDX-License-Identifier: Apache-2.0
#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace coda {
namespace {

// Letters to insert, remove or replace, by the usual table, of which one row is kept.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (char letter : a) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (letter == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  if (known.empty()) return "; there is none";
  const auto best = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return distance(name, a) < distance(name, b);
  });
  return "; the nearest known name is \"" + *best + "\"";
}

std::optional<std::string_view> similar_name(std::string_view name,
                                             const std::vector<std::string_view>& known) {
  const size_t most = std::min<size_t>(3, (name.size() + 2) / 3);
  std::optional<std::string_view> best;
  size_t best_distance = most + 1;
  for (const std::string_view candidate : known) {
    const size_t longer = std::max(name.size(), candidate.size());
    if (longer - std::min(name.size(), candidate.size()) > most) continue;
    const size_t away = distance(name, candidate);
    if (away >= best_distance || away == longer) continue;
    best = candidate;
    best_distance = away;
  }
  return best;
}

}  // namespace coda
