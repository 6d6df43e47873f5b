// SPDX-License-Identifier: Apache-2.0
// The tables that are shipped with a target: configurations measured with their epilogues, for the
// shapes of common models, on an NVIDIA H200 (tuned_rows.txt, and later tuned_rows_h200.txt), and
// some on an H100 (tuned_rows_h100.txt). docs/configurations.md says what is in them and how they
// are made.
#pragma once

#include <string_view>

#include "gpu/configure/tuned_rows.h"

namespace coda::gpu {

// One of the tables. Throws InternalError if a row cannot be read.
TunedRows measured_rows(const Target& target, bool on_h100);

// Both. Where both have a kernel at the same sizes it is the row of the GPU asked for.
const TunedRows& measured_table(const Target& target, bool of_h100 = false);

// By a GPU's name, as its driver has it.
bool is_h100(std::string_view device);

}  // namespace coda::gpu
