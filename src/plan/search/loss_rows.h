// SPDX-License-Identifier: Apache-2.0
// Chooses the rows of a block: from the options, or by the rule at kAutomaticLossRows.
#pragma once

#include <string>

#include "coda/compile_request.h"
#include "rewrite/joint.h"

namespace coda {

struct LossRows {
  int64_t rows = 0;  // 0: store everything whole
  std::string why_whole{};
};

// `joint`: a joint graph whose values for blocks were found.
LossRows choose_loss_rows(const JointGraph& joint, const CompileOptions& options);

}  // namespace coda
