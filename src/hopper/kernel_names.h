// SPDX-License-Identifier: Apache-2.0
// Names for a kernel's text. The layers of a model have the same programs over tensors of other
// names ("l0.gate", "l1.gate"); their kernels are to have the same text, so that one is compiled.
#pragma once

#include <string>

#include "coda/program.h"

namespace coda::hopper {

// The same program, its tensors named as a layer by itself would name them: "gate" for "l7.gate",
// t1, t2, ... for a plan's numbered ones; and the program after its last word.
Program with_kernel_names(const Program& program);

// A kernel's text with its names numbered as they first come, without comments: equal for two texts
// that differ in what their tensors are called, of which the compiler makes the same kernel.
std::string without_names(const std::string& text);

}  // namespace coda::hopper
