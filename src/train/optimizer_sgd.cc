// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with momentum as in torch.optim.SGD (no dampening), except that the
// weight decay is decoupled: it is not added to the momentum. Without momentum there is no state.
#include "train/optimizer_rows.h"

namespace coda::optimizers {

OptimizerKind sgd() {
  return {
      .name = "sgd",
      .summary = "gradient descent with momentum",
      .rate = 25,
      .settings = {{"momentum", 0.9, true, "decay rate of the accumulated gradients"},
                   {"decay", 1e-3, false, "weight decay of matrices"}},
      .make =
          [](const std::map<std::string, double>& settings, DType states) {
            const double momentum = settings.at("momentum");
            Optimizer optimizer;
            optimizer.scalars = {{"rate", [](double rate, int64_t) { return rate; }}};
            if (momentum == 0) {
              optimizer.formulas = "  w1 = decayed - scalar(rate) * g\n";
              return optimizer;
            }
            optimizer.states = {{"momentum", states}};
            optimizer.formulas = "  momentum1 = " + number_text(momentum) + " * momentum0 + g\n" +
                                 "  w1 = decayed - scalar(rate) * momentum1\n";
            return optimizer;
          },
  };
}

}  // namespace coda::optimizers
