// SPDX-License-Identifier: Apache-2.0
// The configurations that the products of programs can be made with, for a person.
#pragma once

#include "plan_flags.h"

namespace coda::tools {

// Prints the choice of each kernel with products and why, then all others, as the model ranks them.
void print_choices(const ProgramFlags& flags);

}  // namespace coda::tools
