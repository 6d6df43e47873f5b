// SPDX-License-Identifier: Apache-2.0
// Names for a kernel's text. The layers of a model have the same programs over tensors of other
// names ("l0.gate", "l1.gate"); their kernels are to have the same text, so that one is compiled.
#pragma once

#include "coda/program.h"

namespace coda::gpu {

// The same program, its tensors named as a layer by itself would name them: "gate" for "l7.gate",
// t1, t2, ... for a plan's numbered ones; and the program after its last word.
Program with_kernel_names(const Program& program);

// The same program under one name, its tensors named by their places: equal for two programs that
// differ in names alone. For checks that compile many kernels; others are for people to read.
Program without_names(Program program);

}  // namespace coda::gpu
