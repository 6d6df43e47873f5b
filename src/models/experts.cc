// SPDX-License-Identifier: Apache-2.0
#include "models/experts.h"

#include <vector>

namespace coda {

Value mixture_of_experts(ModelBuilder& m, const Experts& experts, const std::string& layer, Value x,
                         int64_t hidden) {
  const bool own_names = experts.names == ExpertNames::block_sparse_moe;
  const std::string block = layer + (own_names ? "block_sparse_moe." : "mlp.");
  const Value scores = linear(x, m.matrix(block + "gate.weight", experts.count, hidden));
  // The mask is of the scores: the softmax keeps their order and might make two of them equal.
  Value weights = exp(scores - row_logsumexp(scores)) * top_k_mask(scores, experts.chosen);
  if (experts.normalised) weights = weights / row_sum(weights);

  std::vector<MatmulOperands> products;
  for (int64_t i = 0; i < experts.count; ++i) {
    const std::string name = block + "experts." + std::to_string(i) + ".";
    const auto weight = [&](const char* usual, const char* own, int64_t rows, int64_t cols) {
      return m.matrix(name + (own_names ? own : usual) + ".weight", rows, cols);
    };
    const Value gate = linear(x, weight("gate_proj", "w1", experts.mlp, hidden));
    const Value up = linear(x, weight("up_proj", "w3", experts.mlp, hidden));
    const Value weighted = swiglu(gate, up) * slice_columns(weights, i, 1);
    products.push_back({weighted, weight("down_proj", "w2", hidden, experts.mlp), {.b = true}});
  }
  return matmul(products);
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
