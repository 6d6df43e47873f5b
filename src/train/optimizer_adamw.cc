// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, arXiv 1711.05101) with PyTorch's semantics. Both moments start at
// 0. The scalars `root_scale` and `step_size` correct for this bias.
#include <cmath>

#include "train/optimizer_rows.h"

namespace coda::optimizers {

OptimizerKind adamw() {
  return {
      .name = "adamw",
      .summary = "Adam with decoupled weight decay",
      .settings = {{"beta1", 0.9, true, "decay rate of the averaged gradients"},
                   {"beta2", 0.95, true, "decay rate of the averaged squares"},
                   {"adam-eps", 1e-8, false, "added to the denominator"},
                   {"decay", 0.1, false, "weight decay of matrices"}},
      .make =
          [](const std::map<std::string, double>& settings, DType states) {
            const double beta1 = settings.at("beta1");
            const double beta2 = settings.at("beta2");
            Optimizer optimizer;
            optimizer.states = {{"m", states}, {"v", states}};
            optimizer.scalars = {{"step_size",
                                  [beta1](double rate, int64_t step) {
                                    return rate / (1 - std::pow(beta1, static_cast<double>(step)));
                                  }},
                                 {"root_scale", [beta2](double, int64_t step) {
                                    const auto steps = static_cast<double>(step);
                                    return 1 / std::sqrt(1 - std::pow(beta2, steps));
                                  }}};
            optimizer.formulas = "  m1 = m0 + " + number_text(1 - beta1) + " * (g - m0)\n" +
                                 "  v1 = " + number_text(beta2) + " * v0 + " +
                                 number_text(1 - beta2) + " * (g * g)\n" +
                                 "  step = m1 / (sqrt(v1) * scalar(root_scale) + " +
                                 number_text(settings.at("adam-eps")) + ")\n" +
                                 "  w1 = decayed - scalar(step_size) * step\n";
            return optimizer;
          },
  };
}

}  // namespace coda::optimizers
