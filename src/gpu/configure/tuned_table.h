// SPDX-License-Identifier: Apache-2.0
// The tables that a target ships: configurations that were measured with their epilogues, for the
// shapes of common models. The rows of tuned_rows.txt and the later tuned_rows_h200.txt were
// measured on an NVIDIA H200, some in tuned_rows_h100.txt on an H100. docs/configurations.md
// describes the contents and how the tables are made.
#pragma once

#include <string_view>

#include "gpu/configure/tuned_rows.h"

namespace coda::gpu {

// The rows that were measured on an H100, or those of an H200. Throws InternalError if a row cannot
// be read.
TunedRows measured_rows(const Target& target, bool on_h100);

// The rows of both GPUs. If both have a kernel at the same sizes, the row of the requested GPU
// wins.
const TunedRows& measured_table(const Target& target, bool of_h100 = false);

// `device`: the GPU's name as the driver reports it.
bool is_h100(std::string_view device);

}  // namespace coda::gpu
