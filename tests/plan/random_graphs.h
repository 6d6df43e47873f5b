// SPDX-License-Identifier: Apache-2.0
// Random graphs whose forward is tile-local but for reductions: norms, gates, rotations, rows like
// softmax's, residuals, biases, masks, both layouts of a weight, products of one operand, branches
// with numbers of their own. Well conditioned by construction: weights scaled by their depth,
// norms over eight columns or more, no scale in front of a norm that would cancel it. Large ones
// have rows and columns of several spans of partial reductions.
#pragma once

#include "plan/blocks.h"

namespace coda {

class RandomGraph {
 public:
  // `rows` 0: a few. A large one has 130 rows and widths from 72 to 136.
  explicit RandomGraph(uint64_t seed, int64_t rows = 0, bool large = false)
      : random_(seed), large_(large) {
    build();
    if (rows > 0) rows_ = rows;
  }

  Block block;
  // Seeds outputs with what is no input: gradients that are known as the backward begins.
  void seed_constant(double number) { seed_all(block.graph.constant(number)); }
  // The gradients of a mean over rows of each column; with it a bias at the end has ones for its
  // gradient.
  void seed_row_mean() { seed_all(block.graph.reciprocal_dim("M")); }

  DimValues sizes() const { return {{"M", rows_}}; }
  // Values of every input.
  std::map<std::string, std::vector<double>> inputs() {
    std::normal_distribution<double> normal;
    std::map<std::string, std::vector<double>> values;
    for (int id = 0; id < block.graph.size(); ++id) {
      const Node& n = block.graph.node(id);
      if (n.op != Op::input) continue;
      std::vector<double>& data = values[n.name];
      data.resize(
          static_cast<size_t>(n.shape.rows.evaluate(sizes()) * n.shape.cols.evaluate(sizes())));
      const bool matrix = n.kind == InputKind::parameter && n.shape.is_tensor();
      const double scale = matrix ? 1.2 / std::sqrt(typical_depth()) : 1;
      for (double& x : data) {
        x = n.dtype == DType::i32 ? static_cast<double>(random_() % kPositions)
                                  : scale * normal(random_);
      }
      if (n.name == "targets") data[0] = 0;  // one row counts
    }
    return values;
  }

 private:
  void seed_all(Value cotangent) {
    for (SeededOutput& s : block.request.seeds) s.cotangent = cotangent;
  }

  double typical_depth() const { return large_ ? 104 : 12; }
  static constexpr int64_t kPositions = 5;

  int pick(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  bool chance(int percent) { return pick(100) < percent; }
  // Heads of four columns, pairs.
  int64_t width() { return large_ ? 72 + 32 * pick(3) : 8 + 4 * pick(3); }
  std::string name() { return "p" + std::to_string(names_++); }
  Value vector(const Dim& cols) { return block.parameter(name(), {1, cols}); }

  Value product(Value x, int64_t cols) {
    const Dim depth = x.shape().cols;
    const Value y = chance(50) ? linear(x, block.parameter(name(), {cols, depth}))
                               : conv1d(x, block.parameter(name(), {depth, cols}));
    return chance(30) ? y + vector(cols) : y;
  }

  Value norm(Value x) {
    const Dim cols = x.shape().cols;
    switch (pick(4)) {
      case 0: return layer_norm(x, vector(cols), vector(cols), 1e-3);
      case 1: return rms_norm(x, vector(cols), 1e-3, 1);
      case 2: return mul(x, rms_reciprocal(x, 1e-3));
      default: return rms_norm(x, vector(cols), 1e-3);
    }
  }

  Value activation(Value x) {
    switch (pick(5)) {
      case 0: return silu(x);
      case 1: return gelu(x);
      case 2: return gelu_tanh(x);
      case 3: return tanh(x);
      default: return sigmoid(x);
    }
  }

  // The two halves of pairs under an operation, or x as it is.
  Value pairwise(Value x) {
    const int64_t cols = x.shape().cols.constant();
    const int64_t group = chance(40) ? 2 : chance(50) ? 4 : cols;
    const Value a = split_pair(x, group, 0);
    const Value b = split_pair(x, group, 1);
    if (chance(50)) return mul(activation(a), b);
    return merge_pairs(mul(a, b), tanh(a) + b, group);
  }

  Value rotated(Value x) {
    const int64_t heads = x.shape().cols.constant() / 4;
    if (tables_.cos.graph == nullptr) {
      tables_ = {block.graph.table("cos", {kPositions, 2}),
                 block.graph.table("sin", {kPositions, 2}),
                 block.graph.table("position", {"M", 1}, DType::i32)};
    }
    return rope(x, tables_, heads, 4, chance(60));
  }

  Value gated(Value x) {
    const int64_t cols = width();
    const Value gate = product(x, cols);
    const Value up = product(x, cols);
    return chance(50) ? swiglu(gate, up) : mul(up, sigmoid(gate));
  }

  // Rows that sum to one, weighted.
  Value softmax_like(Value x) {
    const Value p = exp(sub(x, row_logsumexp(x)));
    return chance(50) ? mul(p, vector(x.shape().cols)) : mul(p, x);
  }

  Value masked(Value x) {
    if (mask_.graph == nullptr) mask_ = block.graph.table("mask", {"M", 1}, DType::i32);
    const Value zero = block.graph.constant(0);
    const Value one = block.graph.constant(1);
    return chance(50) ? select(equal(mask_, one), zero, x) : select(less(mask_, one), x * 0.5, x);
  }

  // A branch of a sum, with a number of its own: 0.7 a + 0.3 b.
  Value branch(Value x) {
    constexpr double kNumbers[] = {0.7, 0.3, -1.25, 2};
    return chance(40) ? x * kNumbers[pick(4)] : x;
  }

  Value row_scaled(Value x) { return mul(x, sigmoid(row_mean(x))); }

  Value stage(Value x) {
    const int64_t cols = x.shape().cols.constant();
    switch (pick(10)) {
      case 0: return product(x, width());
      case 1: return activation(product(norm(x), width()));
      case 2: return branch(x) + branch(product(gated(norm(x)), cols));
      case 3: return product(gated(x), width());
      case 4: return rotated(product(chance(50) ? norm(x) : x, width()));
      case 5: return product(softmax_like(product(x, width())), width());
      case 6: return x + branch(product(activation(product(norm(x), width())), cols));
      case 7: return product(pairwise(product(chance(50) ? norm(x) : x, width() * 2)), width());
      case 8: return product(masked(x), width());
      default: return joined(x);
    }
  }

  // Several products of one operand, or of several, in one sum.
  Value joined(Value x) {
    const Value h = chance(70) ? norm(x) : x;
    const int64_t cols = width();
    const Value a = product(branch(h), cols);
    const Value b = product(chance(50) ? h : row_scaled(x), cols);
    if (chance(40)) return branch(rotated(a)) + branch(b);
    return branch(product(a, 12)) + branch(product(activation(b), 12));
  }

  void build() {
    rows_ = 3 + pick(4);
    if (large_) rows_ = 130;
    const int64_t cols = width();
    Value x = block.graph.input("x", {"M", cols});
    block.wants_gradient(x, "d_x");
    const int stages = 1 + pick(3);
    for (int i = 0; i < stages; ++i) x = stage(x);
    if (chance(40)) x = norm(x);
    if (chance(30)) {
      const Value targets = block.graph.table("targets", {"M", 1}, DType::i32);
      const CrossEntropy loss = cross_entropy(product(x, 12), targets, {.ignore_index = 3});
      block.request.outputs.push_back({"loss", loss.mean});
      block.request.seeds.push_back({loss.mean, block.graph.input("scale", {1, 1})});
    } else {
      block.seed(x, "out");
    }
  }

  std::mt19937_64 random_;
  bool large_ = false;
  int names_ = 0;
  int64_t rows_ = 4;
  RopeTables tables_;
  Value mask_;
};

}  // namespace coda
