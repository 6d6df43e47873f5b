// SPDX-License-Identifier: Apache-2.0
// The library's optimizers: the table below has one row for each, and each has its own file
// (optimizer_NAME.cc).
#pragma once

#include <string>

#include "coda/optimizer.h"

// A row names the function that describes the optimizer. The table is a macro because each row
// becomes both a declaration and a call of the function.
#define CODA_OPTIMIZERS(ROW) \
  ROW(adamw)                 \
  ROW(sgd)                   \
  ROW(lion)

namespace coda {

namespace optimizers {
#define CODA_DECLARE(name) OptimizerKind name();
CODA_OPTIMIZERS(CODA_DECLARE)
#undef CODA_DECLARE
}  // namespace optimizers

// A number as the formulas contain it: rounded to fp32.
std::string number_text(double value);

}  // namespace coda
