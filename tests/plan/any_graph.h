// SPDX-License-Identifier: Apache-2.0
// Random graphs of all builders, the same from a seed everywhere: vectors of both kinds, slices,
// concatenations, repeats, groups, gathers, selections, pairs of any group, several products with
// shared operands, opaque calls, norms, rotations and losses, in any order and at any width (one
// column too). What a tile cannot hold stands among what it can. Well conditioned: every value
// stays near 1, comparisons are of integers, scalar factors differ.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/seeds.h"
#include "ir/rebuild.h"
#include "plan/blocks.h"

namespace coda {

// CODA_GRAPH_SEEDS=FIRST-LAST (docs/numerics.md), or the first 200 and those that have been wrong:
// in these the backward reads columns of pairs that it recomputes.
// From this seed on graphs have largest values too: those before it stay the graphs that they were.
inline constexpr uint64_t kWithLargest = 20000;

inline std::vector<uint64_t> seeds_of_any_graphs() {
  std::vector<uint64_t> usual = tests::seeds(0, 199);
  usual.insert(usual.end(), {1384, 7180, 16451, 19946});
  const std::vector<uint64_t> more = tests::seeds(kWithLargest, kWithLargest + 24);
  usual.insert(usual.end(), more.begin(), more.end());
  return tests::seeds_of("CODA_GRAPH_SEEDS", usual);
}

class AnyGraph {
 public:
  explicit AnyGraph(uint64_t seed) : random_(seed * 2 + 1), has_largest_(seed >= kWithLargest) {
    large_ = seed % 16 == 15;  // rows and columns of several spans of partial reductions
    rows_ = large_ ? 130 : chance(8) ? 1 : 2 + pick(6);
    build();
  }

  Block block;
  DimValues sizes() const { return {{"M", rows_}, {"N", large_ ? 68 : 10}}; }

  // Values of every input; indices over the whole range of what they select from.
  std::map<std::string, std::vector<double>> inputs() {
    std::normal_distribution<double> normal;
    std::map<std::string, std::vector<double>> values;
    for (int id = 0; id < block.graph.size(); ++id) {
      const Node& n = block.graph.node(id);
      if (n.op != Op::input) continue;
      std::vector<double>& data = values[n.name];
      data.resize(static_cast<size_t>(size(n.shape.rows) * size(n.shape.cols)));
      const auto limit = limits_.find(n.name);
      for (double& x : data) {
        x = limit == limits_.end()
                ? static_cast<double>(static_cast<float>(std::tanh(normal(random_))))
                : static_cast<double>(random_() % static_cast<uint64_t>(limit->second));
      }
      if (n.name.starts_with("targets") && data.size() > 1 && chance(50)) data.back() = -100;
    }
    return values;
  }

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  bool chance(int percent) { return pick(100) < percent; }
  int64_t size(const Dim& dim) const { return dim.evaluate(sizes()); }
  std::string name(const std::string& kind) { return kind + std::to_string(names_++); }

  Dim any_width() {
    if (chance(6)) return chance(50) ? Dim("N") : 2 * Dim("N");
    if (large_) return 8 * (8 + pick(10));
    return std::array<int64_t, 10>{1, 2, 3, 4, 6, 8, 12, 12, 16, 24}[static_cast<size_t>(pick(10))];
  }
  Dim any_rows() { return chance(80) ? Dim("M") : chance(50) ? Dim(1) : Dim(int64_t{3} + pick(4)); }

  Value made(const Shape& shape) {
    const bool is_weight = shape.rows.is_constant() || chance(20);
    const DType type = chance(10) ? DType::bf16 : DType::f32;
    if (!is_weight) return block.graph.input(name("x"), shape, type);
    return chance(75) ? block.graph.parameter(name("w"), shape, type)
                      : block.graph.table(name("t"), shape, type);
  }
  // A value that is there, of one row or column count, or any.
  Value any() { return values_[static_cast<size_t>(pick(static_cast<int>(values_.size())))]; }
  Value recent() {
    const int count = static_cast<int>(values_.size());
    return values_[static_cast<size_t>(count - 1 - pick(std::min(count, 5)))];
  }
  Value of(const Shape& shape) {
    std::vector<Value> fits;
    for (const Value& v : values_) {
      if (v.shape() == shape) fits.push_back(v);
    }
    if (!fits.empty() && chance(75))
      return fits[static_cast<size_t>(pick(static_cast<int>(fits.size())))];
    values_.push_back(made(shape));
    return values_.back();
  }
  // Of the same shape, or of a vector or scalar that broadcasts to it.
  Value beside(const Shape& shape) {
    switch (pick(6)) {
      case 0: return of({shape.rows, 1});
      case 1: return of({1, shape.cols});
      case 2: return of({1, 1});
      default: return of(shape);
    }
  }
  // i32 [rows, 1], each below `limit`.
  Value index(const Dim& rows, int64_t limit, const char* kind = "index") {
    std::string known = std::string(kind) + "_" + std::to_string(limit) + "_of_" + rows.text();
    for (char& c : known) c = c == '*' || c == ' ' || c == '+' ? '_' : c;
    const int id = block.graph.find_input(known);
    if (id >= 0) return block.graph.value(id);
    limits_[known] = limit;
    return block.graph.table(known, {rows, 1}, DType::i32);
  }
  Value mask(const Dim& rows) {
    return equal(index(rows, 3), block.graph.constant(static_cast<double>(pick(3))));
  }
  int64_t divisor(int64_t n, bool even) {
    std::vector<int64_t> found;
    for (int64_t d = even ? 2 : 1; d <= n; d += even ? 2 : 1) {
      if (n % d == 0) found.push_back(d);
    }
    return found[static_cast<size_t>(pick(static_cast<int>(found.size())))];
  }

  Value unary(Value x) {
    const Value square = x * x;
    switch (pick(14)) {
      case 0: return tanh(x);
      case 1: return sigmoid(x);
      case 2: return silu(x);
      case 3: return gelu(x);
      case 4: return gelu_tanh(x);
      case 5: return exp(tanh(x) * 0.5);
      case 6: return log(square + 0.7);
      case 7: return recip(square + 1.3);
      case 8: return rsqrt(square + 0.8);
      case 9: return sqrt(square + 0.6);
      case 10: return erf(x);
      case 11: return -x;
      case 12: return square * 0.6;
      default: return x * 0.8 + 0.15;
    }
  }

  Value binary(Value x) {
    const Value y = beside(x.shape());
    switch (pick(7)) {
      case 0: return x * 0.7 + y * 0.3;
      case 1: return x * 0.8 - y * 0.6;
      case 2: return mul(x, y);
      case 3: return div(x, y * y + 1.2);
      case 4: return select(mask(x.shape().rows), x * 0.9, y);
      case 5: {  // the larger one is known by a half
        const Value step = mask(x.shape().rows) - 0.5;
        return chance(50) ? maximum(x, x + step) : minimum(x, x + step);
      }
      default: return x + y * 0.5;
    }
  }

  // Far enough apart to be the same ones in fp32.
  Value largest(Value x) {
    Graph& graph = block.graph;
    const PartialKind kind = chance(50) ? PartialKind::max : PartialKind::abs_max;
    const Value sign = graph.constant(chance(50) ? 1 : -1);
    const auto apart = [&](const Value& number) { return (tanh(x) * 0.4 + number) * sign; };
    if (chance(50)) return row_reduce(apart(graph.column_index(x.shape().cols)), kind) * 0.1;
    return col_reduce(apart(transpose(graph.column_index(x.shape().rows))), kind) * 0.1;
  }

  Value reduction(Value x) {
    const Value rows = block.graph.reciprocal_dim(x.shape().rows);
    switch (pick(has_largest_ ? 7 : 6)) {
      case 0: return row_mean(x);
      case 1: return row_logsumexp(x) * 0.4;
      case 2: return row_m2(x) * block.graph.reciprocal_dim(x.shape().cols);
      case 3: return select_column(x, index(x.shape().rows, size(x.shape().cols)));
      case 4: return col_sum(x) * rows;
      case 5: return col_sum(x * x) * rows;
      default: return largest(x);
    }
  }

  Value grouped(Value x) {
    const Dim cols = x.shape().cols;
    if (!cols.is_constant() || chance(40)) return group_repeat(x, 1 + pick(3));
    const int64_t group = divisor(cols.constant(), false);
    return group_sum(x, group) * (1.0 / std::sqrt(static_cast<double>(group)));
  }

  Value paired(Value x) {
    const auto half = x.shape().cols.half();
    if (!half || chance(35)) {
      const Value y = of(x.shape());
      const Dim cols = 2 * x.shape().cols;
      const Dim group = cols.is_constant() ? Dim(divisor(cols.constant(), true)) : cols;
      return merge_pairs(x * 0.9, chance(50) ? x : y, group);
    }
    const Dim cols = x.shape().cols;
    const Dim group = cols.is_constant() ? Dim(divisor(cols.constant(), true)) : cols;
    const Value a = split_pair(x, group, 0);
    const Value b = split_pair(x, group, 1);
    switch (pick(4)) {
      case 0: return a;
      case 1: return swiglu(a, b);
      case 2: return a * 0.4 + b * 0.7;
      default: return merge_pairs(mul(a, b), a * 0.3 - b, group);
    }
  }

  Value sliced(Value x) {
    const Dim cols = x.shape().cols;
    if (!cols.is_constant()) {
      if (cols.terms().contains("M")) return unary(x);
      const auto half = cols.half();
      return half ? slice_columns(x, chance(50) ? Dim(0) : *half, *half) : slice_columns(x, 2, 3);
    }
    const int64_t width = 1 + pick(static_cast<int>(cols.constant()));
    const int64_t offset = pick(static_cast<int>(cols.constant() - width) + 1);
    return slice_columns(x, offset, width);
  }

  Value joined(Value x) {
    std::vector<Value> parts{x};
    for (int i = 1 + pick(2); i > 0; --i) {
      parts.push_back(chance(25) ? x : of({x.shape().rows, any_width()}));
    }
    if (chance(30)) std::swap(parts[0], parts.back());
    return concat_columns(parts);
  }

  // What standard deviation a sum of `depth` products leaves is divided out.
  Value scaled(Value product, const Dim& depth) {
    return product * (0.9 / std::sqrt(static_cast<double>(size(depth))));
  }

  Value product(Value x) {
    const Dim rows = x.shape().rows;
    const Dim depth = x.shape().cols;
    switch (pick(5)) {
      case 0: return scaled(linear(x, of({any_width(), depth})), depth);
      case 1: return scaled(conv1d(x, of({depth, any_width()})), depth);
      case 2:  // [cols, cols'] over rows
        return scaled(matmul({{x, of({rows, any_width()}), {true, false}}}), rows);
      case 3: {
        const Dim cols = any_width();
        const Value y = of({rows, any_width()});
        const Value sum = matmul({{x, of({cols, depth}), {false, true}},
                                  {y, of({y.shape().cols, cols}), {false, false}}});
        return scaled(sum, depth + y.shape().cols);
      }
      default: {  // two products of one operand
        const Dim cols = any_width();
        const Value a = scaled(linear(x, of({cols, depth})), depth);
        const Value b = scaled(linear(x, of({cols, depth})), depth);
        return chance(50) ? a * 0.7 + b * 0.3 : swiglu(a, b);
      }
    }
  }

  Value normed(Value x) {
    const Shape weight{1, x.shape().cols};
    return chance(60) ? rms_norm(x, of(weight), 0.3, chance(30) ? 1 : 0)
                      : layer_norm(x, of(weight), of(weight), 0.3);
  }

  Value gathered(Value x) {
    const Dim rows = chance(70) ? Dim("M") : any_rows();
    return gather_rows(x, index(rows, size(x.shape().rows)));
  }

  Value attended(Value x) {
    const Dim rows = x.shape().rows;
    if (!x.shape().cols.is_constant() || rows.is(1)) return unary(x);
    AttentionOptions options;
    options.head_dim = divisor(x.shape().cols.constant(), false);
    options.heads = x.shape().cols.constant() / options.head_dim;
    options.kv_heads = divisor(options.heads, false);
    options.sequence = rows;
    options.causal = chance(60);
    const Shape kv{rows, options.kv_heads * options.head_dim};
    return attention(x, of(kv), chance(20) ? x.shape() == kv ? x : of(kv) : of(kv), options);
  }

  Value looked_up(Value x) {
    const Value table = chance(50) ? x : of({int64_t{1} + pick(6), any_width()});
    const Dim rows = chance(70) ? Dim("M") : any_rows();
    return embedding(table, index(rows, size(table.shape().rows), "ids"));
  }

  Value rotated(Value x) {
    if (!x.shape().cols.half() || !x.shape().cols.is_constant()) return normed(x);
    const int64_t head = divisor(x.shape().cols.constant(), true);
    const Shape shape{int64_t{5}, head / 2};
    const RopeTables tables{of(shape), of(shape), index(x.shape().rows, 5)};
    return rope(x, tables, x.shape().cols.constant() / head, head, chance(60));
  }

  Value loss(Value x) {
    const Value targets = index(x.shape().rows, size(x.shape().cols), "targets");
    const CrossEntropy entropy = cross_entropy(x, targets);
    return chance(50) ? entropy.rows * 0.5 : x * 0.6 + entropy.rows * 0.4;
  }

  Value step(Value x) {
    switch (pick(24)) {
      case 0:
      case 1: return unary(x);
      case 2:
      case 3:
      case 4: return binary(x);
      case 5:
      case 6: return reduction(x);
      case 7: return grouped(x);
      case 8:
      case 9: return paired(x);
      case 10:
      case 11: return sliced(x);
      case 12:
      case 13: return joined(x);
      case 14: return repeat_columns(x, 2 + pick(2));
      case 15:
      case 16:
      case 17:
      case 18: return product(x);
      case 19: return normed(x);
      case 20: return gathered(x);
      case 21: return chance(50) ? attended(x) : looked_up(x);
      case 22: return rotated(x);
      default: return chance(60) && x.shape().is_vector() ? transpose(x) : loss(x);
    }
  }

  void build() {
    values_.push_back(made({chance(90) ? Dim("M") : any_rows(), any_width()}));
    for (int i = 3 + pick(10); i > 0; --i) {
      const Value x = step(chance(70) ? recent() : any());
      const bool too_large = size(x.shape().rows) * size(x.shape().cols) > (large_ ? 40000 : 2000);
      if (!too_large && block.graph.node(x.id).op != Op::constant) values_.push_back(x);
    }
    ask();
  }

  // One to three outputs, seeds of most, gradients of some of the inputs that they depend on.
  void ask() {
    const bool gradients = chance(75);
    std::vector<int> seeded;
    for (int i = 1 + pick(3); i > 0; --i) {
      const Value v = i == 1 ? values_.back() : recent();
      const std::string named = name("out");
      block.request.outputs.push_back({named, v});
      if (!gradients || (!seeded.empty() && chance(30))) continue;
      seeded.push_back(v.id);
      const bool constant = chance(15);
      block.request.seeds.push_back(
          {v, constant ? block.graph.constant(0.5) : block.graph.input("d_" + named, v.shape())});
    }
    const std::vector<bool> reached = reached_from(block.graph, seeded);
    for (int id = 0; id < static_cast<int>(reached.size()); ++id) {
      const Node& n = block.graph.node(id);
      const bool differentiable = n.op == Op::input && n.kind != InputKind::table;
      if (!reached[static_cast<size_t>(id)] || !differentiable || chance(15)) continue;
      block.request.gradients.push_back(
          {block.graph.value(id), "d_" + n.name, DType::f32, chance(10)});
    }
    if (block.request.gradients.empty()) block.request.seeds.clear();
  }

  std::mt19937_64 random_;
  bool has_largest_;
  bool large_ = false;
  int64_t rows_ = 4;
  int names_ = 0;
  std::vector<Value> values_;
  std::map<std::string, int64_t> limits_;  // of inputs that are indices
};

}  // namespace coda
