// SPDX-License-Identifier: Apache-2.0
// The yardstick of the error contract: the plain graph computed one framework operation at a time.
// Arithmetic is single precision throughout; a tensor that a framework operation writes is rounded
// to the storage type, vectors (statistics, biases' gradients) stay in single precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/prediction.h"
#include "coda/error.h"
#include "coda/float16.h"
#include "cpu/vector_ops.h"
#include "plan/plain_graph.h"

namespace coda {

// The root mean square error of a result over seeds, as a multiple of the yardstick's, and each
// seed's error beside what a seed's may be.
class Ratio {
 public:
  void add(double squared_error, double yardstick, size_t elements) {
    errors_.push_back(squared_error);
    yardsticks_.push_back(yardstick);
    elements_ = elements;
  }
  double bound() const { return elements_ < 1024 ? 1.25 : 1.0; }
  double value() const { return without(errors_.size()); }
  // Of the estimate, by leaving out one seed at a time.
  double standard_error() const {
    const auto n = static_cast<double>(errors_.size());
    double sum = 0;
    for (size_t i = 0; i < errors_.size(); ++i) sum += std::pow(without(i) - value(), 2);
    return std::sqrt(sum * (n - 1) / n);
  }

  // A seed's error, ‖out − ref‖₂ / ‖ref‖₂, and what it may be: the bound times what the yardstick's
  // errors predict, of one seed more by their logarithms' mean, or of this one by its own yardstick
  // (inputs at which everybody errs), and t(1 - 1e-4) of their standard deviations above it
  // (Student's prediction intervals). Not made of the errors that it judges: two wrong seeds would
  // widen it until they pass.
  size_t seeds() const { return errors_.size(); }
  double error_of(size_t seed) const { return std::sqrt(errors_[seed]); }
  double limit_of(size_t seed) const {
    const auto log_of = [](double squared) { return 0.5 * std::log(std::max(squared, 1e-40)); };
    std::vector<double> logs;
    for (double y : yardsticks_) logs.push_back(log_of(y));
    const double of_one_more = prediction_limit(logs);
    // This one's own in the mean's place: its own part of the interval is sqrt(2), not sqrt(1 +
    // 1/n).
    const auto n = static_cast<double>(logs.size());
    const double mean = std::accumulate(logs.begin(), logs.end(), 0.0) / n;
    const double of_this_one = logs[seed] + (of_one_more - mean) * std::sqrt(2 / (1 + 1 / n));
    return bound() * std::exp(std::max(of_one_more, of_this_one));
  }

 private:
  double without(size_t seed) const {
    double error = 0;
    double yardstick = 0;
    for (size_t i = 0; i < errors_.size(); ++i) {
      if (i == seed) continue;
      error += errors_[i];
      yardstick += yardsticks_[i];
    }
    return error > 0 ? std::sqrt(error / yardstick) : 0;
  }

  std::vector<double> errors_;
  std::vector<double> yardsticks_;
  size_t elements_ = 0;
};

class OpByOp {
 public:
  // `build` makes the block; it is called on a block whose op_by_op is set.
  template <typename Build>
  OpByOp(const Build& build, DType storage) : storage_(storage) {
    block_.storage = storage;
    block_.op_by_op = true;
    build(block_);
    Graph& graph = block_.graph;
    std::vector<Seed> seeds;
    std::vector<int> wanted;
    for (const SeededOutput& s : block_.request.seeds) seeds.push_back({s.output.id, s.cotangent});
    for (const GradientRequest& g : block_.request.gradients) wanted.push_back(g.input.id);
    const size_t requested = wanted.size();
    for (const Value& v : block_.written) {
      if (v.shape().is_tensor()) written_.insert(v.id);
      wanted.push_back(v.id);
    }
    const std::vector<Value> gradients = differentiate(graph, seeds, wanted);
    for (size_t i = requested; i < gradients.size(); ++i) {
      if (gradients[i].graph != nullptr && gradients[i].shape().is_tensor()) {
        written_.insert(gradients[i].id);
      }
    }
    for (const NamedValue& o : block_.request.outputs) add_root(o.name, o.value.id);
    for (size_t i = 0; i < requested; ++i) {
      add_root(block_.request.gradients[i].name, gradients[i].id);
    }
  }

  Values run(const Values& inputs, const DimValues& sizes) const {
    const auto after = [&](int id, const std::vector<const Matrix*>& operands,
                           std::vector<Matrix>& values) {
      const Node& n = block_.graph.node(id);
      if (n.name == "embedding_backward") scatter_in_single_precision(operands, values[0]);
      if (n.op == Op::opaque && attention_in_single_precision(n, sizes, operands, values)) return;
      in_single_precision(n, operands, values[0]);
      for (double& x : values[0].data)
        x = written_.contains(id) ? stored(x) : static_cast<float>(x);
    };
    const std::vector<Matrix> values = evaluate(block_.graph, roots_, inputs, sizes, after);
    Values out;
    for (size_t i = 0; i < names_.size(); ++i) out[names_[i]] = values[i].data;
    return out;
  }

 private:
  void add_root(const std::string& name, int id) {
    names_.push_back(name);
    roots_.push_back(id);
  }

  double stored(double x) const {
    const auto single = static_cast<float>(x);
    return storage_ == DType::bf16  ? float_from_bf16(bf16_from_float(single))
           : storage_ == DType::f16 ? float_from_f16(f16_from_float(single))
                                    : single;
  }

  // Functions of one operand are the backend's own, a few ulp from exact. What sums sums in single
  // precision: a product along K by fused multiply-adds, a reduction by partial sums of 64.
  static void in_single_precision(const Node& n, const std::vector<const Matrix*>& x, Matrix& y) {
    if (n.op == Op::elementwise && info(n.fn).arity == 1) {
      std::vector<float> in(x[0]->data.begin(), x[0]->data.end());
      const auto count = static_cast<int64_t>(in.size());
      std::vector<float> out(in.size());
      const cpu::Source source{in.data()};
      cpu::elementwise(n.fn, &source, {out.data(), 0, 1, count});
      y.data.assign(out.begin(), out.end());
    }
    if (n.op == Op::matmul) product(n.transposes[0], *x[0], *x[1], y);
    if (n.op == Op::row_sum || n.op == Op::col_sum) {
      const bool rows = n.op == Op::row_sum;
      for (int64_t i = 0; i < (rows ? y.rows : y.cols); ++i) {
        y.data[static_cast<size_t>(i)] = sum(rows ? x[0]->cols : x[0]->rows, [&](int64_t j) {
          return rows ? x[0]->at(i, j) : x[0]->at(j, i);
        });
      }
    }
    if (n.op == Op::row_reduce && n.reduction == PartialKind::log_sum_exp) {
      for (int64_t r = 0; r < y.rows; ++r) {
        const auto row = x[0]->data.begin() + r * x[0]->cols;
        const double top = *std::max_element(row, row + x[0]->cols);
        const float total =
            sum(x[0]->cols, [&](int64_t c) { return std::exp(static_cast<float>(row[c] - top)); });
        y.at(r, 0) = static_cast<float>(top) + std::log(total);
      }
    }
  }

  template <typename Element>
  static float sum(int64_t count, const Element& element) {
    float total = 0;
    for (int64_t start = 0; start < count; start += 64) {
      float part = 0;
      for (int64_t i = start; i < std::min(count, start + 64); ++i) {
        part += static_cast<float>(element(i));
      }
      total += part;
    }
    return total;
  }

  // Summed along K in equal blocks of at most 192, each a sum of its own: as PyTorch's products on
  // a CPU err (docs/numerics.md).
  static void product(Transposes t, const Matrix& a, const Matrix& b, Matrix& y) {
    const int64_t depth = t.a ? a.rows : a.cols;
    const int64_t blocks = std::max<int64_t>(1, (depth + 191) / 192);
    std::vector<float> row(static_cast<size_t>(y.cols));
    for (int64_t i = 0; i < y.rows; ++i) {
      for (int64_t block = 0; block < blocks; ++block) {
        std::fill(row.begin(), row.end(), 0.0F);
        for (int64_t k = depth * block / blocks; k < depth * (block + 1) / blocks; ++k) {
          const auto left = static_cast<float>(t.a ? a.at(k, i) : a.at(i, k));
          for (int64_t j = 0; j < y.cols; ++j) {
            const auto right = static_cast<float>(t.b ? b.at(j, k) : b.at(k, j));
            row[static_cast<size_t>(j)] = std::fma(left, right, row[static_cast<size_t>(j)]);
          }
        }
        for (int64_t j = 0; j < y.cols; ++j) {
          const float before = block == 0 ? 0 : static_cast<float>(y.at(i, j));
          y.at(i, j) = before + row[static_cast<size_t>(j)];
        }
      }
    }
  }

  static void scatter_in_single_precision(const std::vector<const Matrix*>& x, Matrix& y) {
    std::fill(y.data.begin(), y.data.end(), 0.0);
    if (x.size() > 2) y.data = x[2]->data;
    for (int64_t i = 0; i < x[0]->rows; ++i) {
      const auto id = static_cast<int64_t>(x[1]->at(i, 0));
      for (int64_t c = 0; c < y.cols; ++c) {
        y.at(id, c) = static_cast<float>(y.at(id, c) + x[0]->at(i, c));
      }
    }
  }

  // Attention and its gradient with every intermediate in single precision.
  static bool attention_in_single_precision(const Node& n, const DimValues& sizes,
                                            const std::vector<const Matrix*>& x,
                                            std::vector<Matrix>& y) {
    const bool backward = n.name == "attention_backward";
    if (n.name != "attention" && !backward) return false;
    const auto heads = static_cast<int64_t>(n.attributes.at("heads"));
    const int64_t shared = heads / static_cast<int64_t>(n.attributes.at("kv_heads"));
    const auto dim = static_cast<int64_t>(n.attributes.at("head_dim"));
    const auto scale = static_cast<float>(n.attributes.at("scale"));
    const int64_t sequence = n.sizes.at("sequence").evaluate(sizes);
    const bool causal = n.attributes.at("causal") != 0;
    for (Matrix& m : y) std::fill(m.data.begin(), m.data.end(), 0.0);
    auto add = [](double& to, float term) { to = static_cast<float>(to) + term; };
    auto dot = [dim](const Matrix& a, int64_t i, int64_t a_head, const Matrix& b, int64_t j,
                     int64_t b_head) {
      float total = 0;
      for (int64_t d = 0; d < dim; ++d) {
        total += static_cast<float>(a.at(i, a_head * dim + d)) *
                 static_cast<float>(b.at(j, b_head * dim + d));
      }
      return total;
    };
    for (int64_t i = 0; i < x[0]->rows; ++i) {
      const int64_t first = i / sequence * sequence;
      const int64_t last = causal ? i + 1 : first + sequence;
      for (int64_t h = 0; h < heads; ++h) {
        std::vector<float> p;
        for (int64_t j = first; j < last; ++j)
          p.push_back(dot(*x[0], i, h, *x[1], j, h / shared) * scale);
        if (!backward) {
          const float top = *std::max_element(p.begin(), p.end());
          float total = 0;
          for (float& s : p) total += s = std::exp(s - top);
          y[1].at(i, h) = top + std::log(total);
          for (int64_t j = first; j < last; ++j) {
            for (int64_t d = 0; d < dim; ++d) {
              add(y[0].at(i, h * dim + d),
                  p[static_cast<size_t>(j - first)] / total *
                      static_cast<float>(x[2]->at(j, h / shared * dim + d)));
            }
          }
          continue;
        }
        const float dy_y = dot(*x[5], i, h, *x[3], i, h);
        for (int64_t j = first; j < last; ++j) {
          const float e =
              std::exp(p[static_cast<size_t>(j - first)] - static_cast<float>(x[4]->at(i, h)));
          const float ds = e * (dot(*x[5], i, h, *x[2], j, h / shared) - dy_y) * scale;
          for (int64_t d = 0; d < dim; ++d) {
            const int64_t of_q = h * dim + d;
            const int64_t of_k = h / shared * dim + d;
            add(y[0].at(i, of_q), ds * static_cast<float>(x[1]->at(j, of_k)));
            add(y[1].at(j, of_k), ds * static_cast<float>(x[0]->at(i, of_q)));
            add(y[2].at(j, of_k), e * static_cast<float>(x[5]->at(i, of_q)));
          }
        }
      }
    }
    return true;
  }

  DType storage_;
  Block block_;
  std::set<int> written_;
  std::vector<std::string> names_;
  std::vector<int> roots_;
};

}  // namespace coda
