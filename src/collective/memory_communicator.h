// SPDX-License-Identifier: Apache-2.0
// Exchanges over memory that the processes of one machine share. The launcher creates the memory
// (make_shared_memory of coda/communicator.h). It has no name, so no other process can access it.
#pragma once

#include <memory>

#include "coda/communicator.h"

namespace coda {

// Throws Error unless the shared memory was made for the same number of processes.
std::unique_ptr<Communicator> join_over_memory(const ProcessPlace& place);

}  // namespace coda
