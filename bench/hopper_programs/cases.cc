// SPDX-License-Identifier: Apache-2.0
#include "cases.h"

namespace coda::hopper_programs {

std::vector<Case> all_cases() {
  constexpr int64_t kTokens = 16384;
  constexpr int64_t kPositions = 4096;
  std::vector<Case> cases;
  for (const auto& [d, i] :
       {std::pair<int64_t, int64_t>{2048, 5632}, {4096, 11008}, {8192, 22016}}) {
    const auto add = [&](const std::string& row, const std::string& file, int64_t n, int64_t k) {
      cases.push_back({row, file, d, {{"M", kTokens}, {"N", n}, {"K", k}}});
    };
    add("bare product, TN", "product_tn", d, d);
    add("bare product, NN", "product_nn", d, d);
    cases.push_back({"bare product, NT", "product_nt", d, {{"M", d}, {"N", d}, {"K", kTokens}}});
    add("residual + norm, K = D", "residual_norm", d, d);
    add("residual + norm, K = I", "residual_norm", d, i);
    add("rstd + SwiGLU", "swiglu", i, d);
    cases.push_back({"rstd + RoPE",
                     "rope_" + std::to_string(d),
                     d,
                     {{"M", kTokens}, {"K", d}, {"S", kPositions}}});
    if (d <= 4096) {
      add("rstd + LSE + target, V = 32768", "loss", 32768, d);
      add("rstd + LSE + target, V = 128256", "loss", 128256, d);
    }
    add("norm backward, K = D", "norm_backward", d, d);
    add("norm backward, K = 3D", "norm_backward", d, 3 * d);
    add("norm backward, K = 2I", "norm_backward", d, 2 * i);
    add("SwiGLU backward", "swiglu_backward", i, d);
    cases.push_back(
        {"weight gradient into fp32", "weight_gradient", d, {{"M", d}, {"N", d}, {"K", kTokens}}});
  }
  return cases;
}

}  // namespace coda::hopper_programs
