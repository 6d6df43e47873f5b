// SPDX-License-Identifier: Apache-2.0
// Products that share nothing but what they load (the rotation tables of q and k, when both have as
// many heads) lie in one tile space, but need not: a space to each is cheaper than accumulators for
// both.
#pragma once

#include "coda/program.h"

namespace coda::gpu {

// The same program, where every such product has loads of its own.
Program clone_shared_loads(const Program& program);

}  // namespace coda::gpu
