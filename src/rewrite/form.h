// SPDX-License-Identifier: Apache-2.0
// A tensor value while factors are sunk:  f ⊙ (X + Σ u vᵀ) + Σ u' v'ᵀ.  f is a sorted list of
// per-row vectors and non-constant scalars; the terms are of rank one. Terms inside and outside f
// are kept apart, or the backward of a row-affine norm would carry a term twice that cancels only
// numerically.
#pragma once

#include <vector>

#include "coda/graph.h"

namespace coda {

// row ⊗ col: [M, 1] (or a scalar) by [1, N]; an absent member (no graph) is 1.
struct Term {
  Value row;
  Value col;
};

struct Form {
  Value core;                // X
  std::vector<int> factors;  // f, ascending ids, with repetition
  std::vector<Term> inner;
  std::vector<Term> outer;
  int origin = -1;  // the node that this is a view of, if it still is exactly that node

  bool has_terms() const { return !inner.empty() || !outer.empty(); }
};

inline Form plain(Value v) { return {v, {}, {}, {}, v.id}; }

// The atoms of a product of vectors: constants multiply into `number`, the others are listed.
void vector_factors(Value v, double& number, std::vector<Value>& atoms);
// The product of factors by id (1 if none).
Value product_of(Graph& graph, const std::vector<int>& factors);
Value value_of(const Term& term, Graph& graph);

// Multiplies a form by one vector or scalar atom, keeping it apart.
void multiply(Form& form, Value atom);
// X, inner terms and outer terms times a constant; constants never join f, or r and -r would not be
// equal factors.
void multiply_constant(Form& form, double number);

// The node: (X + inner) ⊙ f + outer, factors in `first` applied before the others.
Value value_of(const Form& form, const std::vector<int>& first = {});

// A forward node as a form, without changing it: vectors peeled off a chain of multiplications.
Form peel(Value v);

// Peels per-column factors off X = T ⊙ w1 ⊙ w2: returns T, and the factors in order of application.
Value peel_columns(Value core, std::vector<Value>& columns);

}  // namespace coda
