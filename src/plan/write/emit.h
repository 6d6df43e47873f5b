// SPDX-License-Identifier: Apache-2.0
// From a partition to a plan: the programs' steps, finalizers, opaque calls, in order.
#pragma once

#include <vector>

#include "coda/compile_request.h"
#include "coda/plan.h"
#include "plan/partition/partition.h"
#include "plan/write/program_writer.h"

namespace coda {

// Where programs have misfits the plan is not whole; InternalError if nobody asks for them.
Plan emit(const JointGraph& joint, const Partition& partition, const CompileRequest& request,
          const CompileOptions& options, std::vector<Misfit>* misfits = nullptr);

}  // namespace coda
