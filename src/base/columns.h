// SPDX-License-Identifier: Apache-2.0
// Index arithmetic of columns: exact division of sizes, and the columns of the members of a pair.
#pragma once

#include <optional>

#include "coda/dim.h"

namespace coda {

// wide / group if it is a size for all values of the symbols: 9*Dh / Dh = 9, 128*H / 64 = 2*H.
std::optional<Dim> quotient(const Dim& wide, const Dim& group);

// a * b if one of them is a number.
std::optional<Dim> product(const Dim& a, const Dim& b);

// Whether `wide` columns are whole groups of `group`, an even number, in whose first halves the
// first members of pairs stand.
bool has_pairs(const Dim& wide, const Dim& group);

// Column of the member `which` of pair `j`, for pairs that lie within groups of `group` columns.
constexpr int64_t pair_column(int64_t j, int which, int64_t group) {
  const int64_t half = group / 2;
  return (j / half) * group + j % half + which * half;
}

}  // namespace coda
