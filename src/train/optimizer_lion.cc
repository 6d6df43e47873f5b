// SPDX-License-Identifier: Apache-2.0
// Lion (Chen et al., arXiv 2302.06675): each weight moves by the learning rate, against the sign of
// a moving average of the gradients. Lion has one state where AdamW has two.
#include "train/optimizer_rows.h"

namespace coda::optimizers {

OptimizerKind lion() {
  return {
      .name = "lion",
      .summary = "an update by the sign of averaged gradients",
      .rate = 0.25,
      .settings = {{"beta1", 0.9, true, "decay rate of the average that the update uses"},
                   {"beta2", 0.99, true, "decay rate of the stored average"},
                   {"decay", 0.4, false, "weight decay of matrices"}},
      .make =
          [](const std::map<std::string, double>& settings, DType states) {
            Optimizer optimizer;
            optimizer.states = {{"m", states}};
            optimizer.scalars = {{"rate", [](double rate, int64_t) { return rate; }}};
            optimizer.formulas =
                "  mean = m0 + " + number_text(1 - settings.at("beta1")) + " * (g - m0)\n" +
                "  m1 = m0 + " + number_text(1 - settings.at("beta2")) + " * (g - m0)\n" +
                "  w1 = decayed - scalar(rate) * (less(0, mean) - less(mean, 0))\n";
            return optimizer;
          },
  };
}

}  // namespace coda::optimizers
