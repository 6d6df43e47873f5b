// SPDX-License-Identifier: Apache-2.0
// Canonical names in a kernel's text. The layers of a model run the same programs on tensors with
// different names ("l0.gate", "l1.gate"). With canonical names their kernels have the same text and
// are compiled once.
#pragma once

#include "coda/program.h"

namespace coda::gpu {

// Names each tensor as if its layer were alone: "gate" for "l7.gate", and t1, t2, ... for the
// plan's numbered tensors. The program gets the last part of its name.
Program with_kernel_names(const Program& program);

// Replaces the program's name by a fixed one and tensor names by their indices, so that programs
// that differ only in names become equal. For checks that compile many kernels; kernels for people
// keep readable names.
Program without_names(Program program);

}  // namespace coda::gpu
