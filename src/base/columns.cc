// SPDX-License-Identifier: Apache-2.0
// Exact division of linear forms.
#include "base/columns.h"

namespace coda {

std::optional<Dim> quotient(const Dim& wide, const Dim& group) {
  if (group.is_constant()) {
    const int64_t divisor = group.constant();
    if (divisor <= 0 || wide.constant() % divisor != 0) return std::nullopt;
    Dim result = wide.constant() / divisor;
    for (const auto& [symbol, coefficient] : wide.terms()) {
      if (coefficient % divisor != 0) return std::nullopt;
      result = result + (coefficient / divisor) * Dim(symbol);
    }
    return result;
  }
  const auto& [symbol, coefficient] = *group.terms().begin();
  const auto found = wide.terms().find(symbol);
  if (found == wide.terms().end() || found->second % coefficient != 0) return std::nullopt;
  const int64_t factor = found->second / coefficient;
  if (factor <= 0 || factor * group != wide) return std::nullopt;
  return Dim(factor);
}

std::optional<Dim> product(const Dim& a, const Dim& b) {
  if (a.is_constant()) return a.constant() * b;
  if (b.is_constant()) return b.constant() * a;
  return std::nullopt;
}

bool has_pairs(const Dim& wide, const Dim& group) { return group.half() && quotient(wide, group); }

}  // namespace coda
