// SPDX-License-Identifier: Apache-2.0
// The optimizers of the library: a row each in the table below, a file each (optimizer_NAME.cc).
#pragma once

#include <string>

#include "coda/optimizer.h"

// A row is the name of a function that says all of an optimizer. It is a macro because a row is
// both a declaration and a call of it.
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

// A number as formulas have it: rounded to fp32.
std::string number_text(double value);

}  // namespace coda
