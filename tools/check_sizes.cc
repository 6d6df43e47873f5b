// SPDX-License-Identifier: Apache-2.0
// Sizes are chosen by the factors of symbols, so that for example head counts stay small.
#include "check_sizes.h"

#include <algorithm>

namespace coda::tools {
namespace {

void add_factors(const Shape& shape, Factors& factors) {
  for (const Dim& dim : {shape.rows, shape.cols}) {
    for (const auto& [symbol, factor] : dim.terms())
      factors[symbol] = std::max(factors[symbol], factor);
  }
}

}  // namespace

Factors factors_of(const std::vector<Program>& programs) {
  Factors factors;
  for (const Program& program : programs) {
    for (const TensorDecl& decl : program.tensors) add_factors(decl.shape, factors);
    for (const Step& step : program.steps) add_factors({step.size(), 1}, factors);
  }
  return factors;
}

Factors factors_of(const NamedGraph& named) {
  Factors factors;
  for (int id = 0; id < named.graph.size(); ++id) {
    const Node& n = named.graph.node(id);
    if (n.op == Op::input) add_factors(n.shape, factors);
  }
  return factors;
}

// Sizes that fill tiles, ragged sizes, and sizes smaller than any tile. Symbols with a factor, as
// in 128*H, stay small.
std::vector<DimValues> usual_sizes(const Factors& factors) {
  constexpr int64_t kRagged[] = {77, 131, 203, 67, 95, 149};
  std::vector<DimValues> all(3);
  int64_t i = 0;
  for (const auto& [symbol, factor] : factors) {
    const auto divided = [f = factor](int64_t size, int64_t least) {
      return f < 8 ? size : std::max(least, size / f);
    };
    all[0][symbol] = divided(128 + 64 * i, 2);  // several heads, to tell them apart
    all[1][symbol] = divided(kRagged[i % 6], 1);
    all[2][symbol] = divided(1 + 7 * i, 1);
    ++i;
  }
  if (i == 0) all.resize(1);
  return all;
}

// Sizes for fast finite differences: small, but never 1.
DimValues small_sizes(const Factors& factors) {
  DimValues sizes;
  int64_t size = 5;
  for (const auto& [symbol, factor] : factors) {
    sizes[symbol] = factor < 8 ? size : 2;
    size += 3;
  }
  return sizes;
}

}  // namespace coda::tools
