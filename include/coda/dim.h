// SPDX-License-Identifier: Apache-2.0
// Sizes of tensors: a Dim is a linear form over named symbols ("M", "2*I + 4"), bound to numbers
// when a plan is run. Linear forms suffice because slices, concatenations and pairs only add,
// subtract and halve sizes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "coda/api.h"

namespace CODA_API coda {

// Values of the dimension symbols: {"M": 2048}.
using DimValues = std::map<std::string, int64_t, std::less<>>;

class Dim {
 public:
  Dim() = default;
  Dim(int64_t constant) : constant_(constant) {}         // NOLINT: a number is a size
  Dim(int constant) : constant_(constant) {}             // NOLINT: a number is a size
  Dim(const char* symbol) : Dim(std::string(symbol)) {}  // NOLINT: a name is a size
  Dim(const std::string& symbol);  // NOLINT: a name is a size; throws Error unless an identifier

  bool is_constant() const { return terms_ == nullptr; }
  bool is(int64_t value) const { return is_constant() && constant_ == value; }
  int64_t constant() const { return constant_; }
  const std::map<std::string, int64_t>& terms() const;  // symbol -> coefficient, none zero

  // The size for given symbols; throws Error naming the symbol that has no value, or a size that is
  // not positive.
  int64_t evaluate(const DimValues& values) const;
  // Half the size, or none if a coefficient is odd.
  std::optional<Dim> half() const;
  // "M", "576", "2*I + 4". parse(text()) is the identity.
  std::string text() const;
  static Dim parse(std::string_view text);

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(int64_t factor, const Dim& d);
  friend bool operator==(const Dim& a, const Dim& b) {
    return a.constant_ == b.constant_ && (a.terms_ == b.terms_ || a.terms() == b.terms());
  }
  friend auto operator<=>(const Dim& a, const Dim& b) {
    if (auto c = a.constant_ <=> b.constant_; c != 0) return c;
    return a.terms() <=> b.terms();
  }

 private:
  void set_terms(std::map<std::string, int64_t> terms);

  int64_t constant_ = 0;
  // Copies of a size share its terms, because graphs and plans have many. Null if there are none.
  std::shared_ptr<const std::map<std::string, int64_t>> terms_;
};

// [rows, columns]. A unit dimension makes a vector or a scalar: [M, 1] per row, [1, N] per column,
// [1, 1] scalar.
struct Shape {
  Dim rows = 1;
  Dim cols = 1;

  bool is_scalar() const { return rows.is(1) && cols.is(1); }
  bool is_per_row() const { return !rows.is(1) && cols.is(1); }
  bool is_per_column() const { return rows.is(1) && !cols.is(1); }
  bool is_vector() const { return rows.is(1) || cols.is(1); }  // scalars included
  bool is_tensor() const { return !is_vector(); }
  std::string text() const { return "[" + rows.text() + ", " + cols.text() + "]"; }

  friend bool operator==(const Shape&, const Shape&) = default;
  friend auto operator<=>(const Shape&, const Shape&) = default;
};

}  // namespace CODA_API coda
