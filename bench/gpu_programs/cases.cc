// SPDX-License-Identifier: Apache-2.0
#include "cases.h"

namespace coda::gpu_programs {
namespace {

constexpr int64_t kPositions = 4096;

// Heads have 128 columns.
DimValues rope_sizes(int64_t tokens, int64_t hidden) {
  return {{"M", tokens}, {"H", hidden / 128}, {"K", hidden}, {"S", kPositions}};
}

}  // namespace

const std::vector<Width>& widths() {
  static const std::vector<Width> all{{2048, 5632}, {4096, 11008}, {8192, 22016}};
  return all;
}

std::vector<Case> block_cases(int64_t tokens) {
  std::vector<Case> cases;
  for (const auto& [d, i] : widths()) {
    const auto add = [&, d = d](const std::string& row, const std::string& file, int64_t n,
                                int64_t k) {
      cases.push_back({row, file, d, tokens, {{"M", tokens}, {"N", n}, {"K", k}}});
    };
    const auto add_weight_gradient = [&, d = d](const std::string& row, const std::string& file) {
      cases.push_back({row, file, d, tokens, {{"M", d}, {"N", d}, {"K", tokens}}});
    };
    add("bare product, TN", "product_tn", d, d);
    add("bare product, NN", "product_nn", d, d);
    add_weight_gradient("bare product, NT", "product_nt");
    add("residual + norm, K = D", "residual_norm", d, d);
    add("residual + norm, K = I", "residual_norm", d, i);
    add("rstd + SwiGLU", "swiglu", i, d);
    cases.push_back({"rstd + RoPE", "rope", d, tokens, rope_sizes(tokens, d)});
    if (d == 2048) {
      cases.push_back({"rstd + QK-norm + RoPE", "qk_norm_rope", d, tokens, rope_sizes(tokens, d)});
    }
    if (d <= 4096) {
      add("rstd + LSE + target, V = 32768", "loss", 32768, d);
      add("rstd + LSE + target, V = 128256", "loss", 128256, d);
    }
    add("norm backward, K = D", "norm_backward", d, d);
    add("norm backward, K = 3D", "norm_backward", d, 3 * d);
    add("norm backward, K = 2I", "norm_backward", d, 2 * i);
    add("SwiGLU backward", "swiglu_backward", i, d);
    add_weight_gradient("weight gradient into fp32", "weight_gradient");
  }
  return cases;
}

std::vector<Case> square_cases() {
  std::vector<Case> cases;
  for (const Width& width : widths()) {
    const int64_t d = width.hidden;
    const auto add = [&](const std::string& row, const std::string& file, int64_t n) {
      cases.push_back({row, file, d, d, {{"M", d}, {"N", n}, {"K", d}}});
    };
    add("bare product, TN", "product_tn", d);
    add("residual + norm", "residual_norm", d);
    add("rstd + SwiGLU", "swiglu", d / 2);
    cases.push_back({"rstd + RoPE", "rope", d, d, rope_sizes(d, d)});
    add("rstd + LSE + target", "loss", d);
    add("norm backward", "norm_backward", d);
    add("SwiGLU backward", "swiglu_backward", d);
    add("weight gradient into fp32", "weight_gradient", d);
  }
  return cases;
}

}  // namespace coda::gpu_programs
