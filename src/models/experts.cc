// SPDX-License-Identifier: Apache-2.0
#include "models/experts.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rounding.h"

namespace coda {
namespace {

// An expert: its weights, and what they make of rows and the weight of each row.
class Expert {
 public:
  Expert(ModelBuilder& m, const Experts& experts, const std::string& block, int64_t number,
         int64_t hidden) {
    const bool own_names = experts.names == ExpertNames::block_sparse_moe;
    const std::string name = block + "experts." + std::to_string(number) + ".";
    const auto weight = [&](const char* usual, const char* own, int64_t rows, int64_t cols) {
      return m.matrix(name + (own_names ? own : usual) + ".weight", rows, cols);
    };
    gate_ = weight("gate_proj", "w1", experts.mlp, hidden);
    up_ = weight("up_proj", "w3", experts.mlp, hidden);
    down_ = weight("down_proj", "w2", hidden, experts.mlp);
  }

  // The product that gives the expert's result. The row's weight is a factor of its operand, so
  // that the sum over experts is one product where all have the same rows.
  MatmulOperands weighted(Value x, Value weights) const {
    return {swiglu(linear(x, gate_), linear(x, up_)) * weights, down_, {.b = true}};
  }

 private:
  Value gate_, up_, down_;
};

// All experts of all rows.
Value dense(const std::vector<Expert>& experts, Value x, Value weights) {
  std::vector<MatmulOperands> products;
  for (size_t i = 0; i < experts.size(); ++i)
    products.push_back(experts[i].weighted(x, slice_columns(weights, static_cast<int64_t>(i), 1)));
  return matmul(products);
}

// Each expert of its rows, which are at most `rows`. Their results are added up where they belong,
// expert by expert.
Value sparse(const std::vector<Expert>& experts, Value x, Value weights, Value mask, int64_t rows) {
  const std::vector<Value> lists = marked_rows(mask, rows);
  Value sum;
  for (size_t i = 0; i < experts.size(); ++i) {
    const Value own = slice_columns(weights, static_cast<int64_t>(i), 1);
    const MatmulOperands product = experts[i].weighted(gather(x, lists[i]), gather(own, lists[i]));
    const Value part = scatter_add(matmul({product}), lists[i], x.shape().rows);
    sum = i == 0 ? part : sum + part;
  }
  return sum;
}

// How many of the mask's marks a list of so many rows a column has no room for.
Value marks_without_room(Value mask, int64_t rows) {
  return col_sum(transpose(maximum(col_sum(mask) - static_cast<double>(rows), 0.0)));
}

}  // namespace

Value mixture_of_experts(ModelBuilder& m, const Experts& experts, const std::string& layer, Value x,
                         int64_t hidden) {
  const bool own_names = experts.names == ExpertNames::block_sparse_moe;
  const std::string block = layer + (own_names ? "block_sparse_moe." : "mlp.");
  const Value scores = linear(x, m.matrix(block + "gate.weight", experts.count, hidden));
  // The mask is of the scores: the softmax keeps their order and might make two of them equal.
  const Value mask = top_k_mask(scores, experts.chosen);
  Value weights = exp(scores - row_logsumexp(scores)) * mask;
  if (experts.normalised) weights = weights / row_sum(weights);

  std::vector<Expert> all;
  for (int64_t i = 0; i < experts.count; ++i) all.emplace_back(m, experts, block, i, hidden);
  const int64_t rows = m.expert_rows();
  if (rows == 0) return dense(all, x, weights);
  m.add_dropped(marks_without_room(mask, rows));
  return sparse(all, x, weights, mask, rows);
}

int64_t expert_rows(const Experts& experts, double capacity, int64_t tokens) {
  const double mean =
      static_cast<double>(tokens * experts.chosen) / static_cast<double>(experts.count);
  const double rows = std::ceil(capacity * mean);
  if (rows >= static_cast<double>(tokens)) return tokens;
  return std::min(tokens, round_up(std::max(int64_t{1}, static_cast<int64_t>(rows)), kExpertTile));
}

int64_t parameter_count(const Experts& experts, int64_t hidden) {
  return (1 + 3 * experts.mlp) * experts.count * hidden;
}

int64_t unused_by_a_token(const Experts& experts, int64_t hidden) {
  return 3 * experts.mlp * (experts.count - experts.chosen) * hidden;
}

std::string description(const Experts& experts) {
  return std::to_string(experts.count) + " experts of " + std::to_string(experts.mlp) + " (" +
         std::to_string(experts.chosen) + " of a token)";
}

}  // namespace coda
