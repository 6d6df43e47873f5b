// SPDX-License-Identifier: Apache-2.0
// Two programs over the same tiles as one, which reads no memory between them.
#pragma once

#include "coda/program.h"

namespace coda::program {

// What `first` does and then `second`. A tile that the second loads whole and the first stores
// whole is the first's value, rounded as it is stored. Tensors of one name are one. Throws
// InternalError where the second reads something else that the first stores.
Program continued(const Program& first, const Program& second);

}  // namespace coda::program
