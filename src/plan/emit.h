// SPDX-License-Identifier: Apache-2.0
// From a partition to a plan: the programs' steps, finalizers, opaque calls, in order.
#pragma once

#include "coda/compile.h"
#include "plan/partition.h"

namespace coda {

Plan emit(const JointGraph& joint, const Partition& partition, const CompileRequest& request,
          const CompileOptions& options);

}  // namespace coda
