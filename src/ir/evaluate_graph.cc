// SPDX-License-Identifier: Apache-2.0
#include "ir/evaluate_graph.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "coda/error.h"

namespace coda {
namespace {

class Evaluation {
 public:
  Evaluation(const Graph& graph, const std::map<std::string, std::vector<double>>& inputs,
             const DimValues& sizes, const AfterNode& after)
      : graph_(graph),
        inputs_(inputs),
        sizes_(sizes),
        after_(after),
        values_(static_cast<size_t>(graph.size())) {}

  void run(int id) {
    const Node& n = graph_.node(id);
    std::vector<Matrix>& value = values_[static_cast<size_t>(id)] = compute(n);
    if (!after_) return;
    std::vector<const Matrix*> operands;
    for (size_t i = 0; i < n.operands.size(); ++i) operands.push_back(&operand(n, i));
    after_(id, operands, value);
  }
  const Matrix& value(int id) const { return values_[static_cast<size_t>(id)][0]; }

 private:
  const Matrix& operand(const Node& n, size_t i) const { return value(n.operands[i]); }

  Matrix empty(const Shape& shape) const {
    Matrix m{shape.rows.evaluate(sizes_), shape.cols.evaluate(sizes_), {}};
    m.data.assign(static_cast<size_t>(m.rows * m.cols), 0.0);
    return m;
  }

  std::vector<Matrix> compute(const Node& n) const {
    if (n.op == Op::opaque) return call(n);
    if (n.op == Op::result)
      return {values_[static_cast<size_t>(n.operands[0])][static_cast<size_t>(n.which)]};
    Matrix out = empty(n.shape);
    fill(n, out);
    return {std::move(out)};
  }

  std::vector<Matrix> call(const Node& n) const {
    std::vector<Matrix> operands;
    std::vector<Matrix> results;
    std::map<std::string, Dim> sizes;
    for (size_t i = 0; i < n.operands.size(); ++i) operands.push_back(operand(n, i));
    for (const Shape& shape : n.results) results.push_back(empty(shape));
    for (const auto& [name, size] : n.sizes) sizes[name] = size.evaluate(sizes_);
    const OperationSettings settings = checked_settings(*n.operation, n.attributes, sizes);
    n.operation->evaluate(settings, operands, results);
    return results;
  }

  void fill(const Node& n, Matrix& out) const {
    switch (n.op) {
      case Op::input: read_input(n, out); return;
      case Op::constant: out.data[0] = n.number; return;
      case Op::reciprocal_dim:
        out.data[0] = 1.0 / static_cast<double>(n.dim.evaluate(sizes_));
        return;
      case Op::row_reduce:
      case Op::col_reduce: reduction(n, out); return;
      case Op::matmul: product(n, out); return;
      case Op::row_sum:
      case Op::col_sum:
      case Op::group_sum: sum(n, out); return;
      case Op::transpose: out.data = operand(n, 0).data; return;
      case Op::concat_columns: concat(n, out); return;
      default: break;
    }
    for (int64_t r = 0; r < out.rows; ++r) {
      for (int64_t c = 0; c < out.cols; ++c) out.at(r, c) = element(n, r, c);
    }
  }

  // The value of one element of an operation that has no loop of its own.
  double element(const Node& n, int64_t r, int64_t c) const {
    switch (n.op) {
      case Op::ones: return 1;
      case Op::column_index: return static_cast<double>(c);
      case Op::elementwise: return apply(n, r, c);
      case Op::select_column: {
        const Matrix& x = operand(n, 0);
        const auto index = static_cast<int64_t>(operand(n, 1).at(r, 0));
        return index >= 0 && index < x.cols ? x.at(r, index) : 0;
      }
      case Op::split_pair:
        return operand(n, 0).at(r, pair_column(n.dim.evaluate(sizes_), n.which, c));
      case Op::merge_pairs: {
        const int64_t group = n.dim.evaluate(sizes_);
        const int64_t inside = c % group;
        const int which = inside < group / 2 ? 0 : 1;
        return operand(n, static_cast<size_t>(which))
            .at(r, c / group * (group / 2) + inside % (group / 2));
      }
      case Op::slice_columns:
        return operand(n, 0).at(
            r, c + (n.dim.is_constant() ? n.dim.constant() : n.dim.evaluate(sizes_)));
      case Op::repeat_columns: return operand(n, 0).at(r, c % operand(n, 0).cols);
      case Op::gather_rows: {
        const auto row = static_cast<int64_t>(operand(n, 1).at(r, 0));
        require(row >= 0 && row < operand(n, 0).rows,
                "gather_rows: row " + std::to_string(row) + " is outside the table of " +
                    std::to_string(operand(n, 0).rows) + " rows");
        return operand(n, 0).at(row, c);
      }
      case Op::group_repeat: return operand(n, 0).at(r, c / n.dim.evaluate(sizes_));
      default: throw InternalError("the reference evaluator lacks an operation");
    }
  }

  static int64_t pair_column(int64_t group, int which, int64_t c) {
    const int64_t half = group / 2;
    return c / half * group + which * half + c % half;
  }

  double apply(const Node& n, int64_t r, int64_t c) const {
    double x[3] = {0, 0, 0};
    for (size_t i = 0; i < n.operands.size(); ++i) {
      const Matrix& m = operand(n, i);
      x[i] = m.at(m.rows == 1 ? 0 : r, m.cols == 1 ? 0 : c);
    }
    return info(n.fn).evaluate(x[0], x[1], x[2]);
  }

  void read_input(const Node& n, Matrix& out) const {
    auto given = inputs_.find(n.name);
    require(given != inputs_.end(), "input \"" + n.name + "\" " + n.shape.text() + " is not given");
    require(given->second.size() == out.data.size(),
            "input \"" + n.name + "\" has " + std::to_string(given->second.size()) + " elements; " +
                n.shape.text() + " needs " + std::to_string(out.data.size()));
    out.data = given->second;
  }

  void reduction(const Node& n, Matrix& out) const {
    const Matrix& x = operand(n, 0);
    const bool rows = n.op == Op::row_reduce;
    const int value = info(n.reduction).value;
    std::vector<double> line(static_cast<size_t>(rows ? x.cols : x.rows));
    for (int64_t i = 0; i < (rows ? x.rows : x.cols); ++i) {
      for (size_t k = 0; k < line.size(); ++k) {
        const auto at = static_cast<int64_t>(k);
        line[k] = rows ? x.at(i, at) : x.at(at, i);
      }
      const PartialLanes lanes = reduce(n.reduction, line);
      const auto result = [&](int which) { return result_of(n.reduction, lanes, which); };
      out.data[static_cast<size_t>(i)] =
          value == kBothResults ? result(0) + result(1) : result(value);
    }
  }

  void product(const Node& n, Matrix& out) const {
    for (size_t s = 0; s < n.transposes.size(); ++s) {
      const Matrix& a = operand(n, 2 * s);
      const Matrix& b = operand(n, 2 * s + 1);
      const Transposes t = n.transposes[s];
      const int64_t depth = t.a ? a.rows : a.cols;
      for (int64_t i = 0; i < out.rows; ++i) {
        for (int64_t k = 0; k < depth; ++k) {
          const double left = t.a ? a.at(k, i) : a.at(i, k);
          for (int64_t j = 0; j < out.cols; ++j)
            out.at(i, j) += left * (t.b ? b.at(j, k) : b.at(k, j));
        }
      }
    }
  }

  void sum(const Node& n, Matrix& out) const {
    const Matrix& x = operand(n, 0);
    const int64_t group = n.op == Op::group_sum ? n.dim.evaluate(sizes_) : 1;
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t c = 0; c < x.cols; ++c) {
        const int64_t column = n.op == Op::row_sum ? 0 : c / group;
        out.at(n.op == Op::col_sum ? 0 : r, column) += x.at(r, c);
      }
    }
  }

  void concat(const Node& n, Matrix& out) const {
    int64_t start = 0;
    for (size_t i = 0; i < n.operands.size(); ++i) {
      const Matrix& part = operand(n, i);
      for (int64_t r = 0; r < out.rows; ++r) {
        for (int64_t c = 0; c < part.cols; ++c) out.at(r, start + c) = part.at(r, c);
      }
      start += part.cols;
    }
  }

  const Graph& graph_;
  const std::map<std::string, std::vector<double>>& inputs_;
  const DimValues& sizes_;
  const AfterNode& after_;
  std::vector<std::vector<Matrix>> values_;  // by id
};

}  // namespace

std::vector<Matrix> evaluate(const Graph& graph, const std::vector<int>& roots,
                             const std::map<std::string, std::vector<double>>& inputs,
                             const DimValues& sizes, const AfterNode& after) {
  std::set<int> needed(roots.begin(), roots.end());
  for (auto it = needed.rbegin(); it != needed.rend(); ++it) {
    for (int operand : graph.node(*it).operands) needed.insert(operand);
  }
  Evaluation evaluation(graph, inputs, sizes, after);
  for (int id : needed) evaluation.run(id);
  std::vector<Matrix> out;
  for (int id : roots) out.push_back(evaluation.value(id));
  return out;
}

}  // namespace coda
