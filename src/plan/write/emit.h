// SPDX-License-Identifier: Apache-2.0
// Writes a partition as a plan: programs, finalizers and opaque calls in order.
#pragma once

#include <vector>

#include "coda/compile_request.h"
#include "coda/plan.h"
#include "plan/partition/partition.h"
#include "plan/write/program_writer.h"

namespace coda {

// If programs have misfits, the plan is incomplete; InternalError if `misfits` is null.
Plan emit(const JointGraph& joint, const Partition& partition, const CompileRequest& request,
          const CompileOptions& options, std::vector<Misfit>* misfits = nullptr);

}  // namespace coda
