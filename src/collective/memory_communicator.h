// SPDX-License-Identifier: Apache-2.0
// Processes of one machine that exchange over memory which they share. Whoever starts them makes it
// (make_shared_memory of coda/communicator.h): it has no name, so no other process reaches it.
#pragma once

#include <memory>

#include "coda/communicator.h"

namespace coda {

// Throws Error where the place's shared memory is not what was made for as many processes.
std::unique_ptr<Communicator> join_over_memory(const ProcessPlace& place);

}  // namespace coda
