// SPDX-License-Identifier: Apache-2.0
// The sizes that a program of a file is run with.
#pragma once

#include <set>
#include <span>
#include <string>

#include "coda/program_file.h"

namespace coda::tools {

// The symbols of its tensors' shapes and its values' (column_index(N) reads no tensor).
std::set<std::string> symbols_of(const Program& program);

// Every dense matrix that is fp32 in `type`, as products on a GPU need it.
Program stored_as(Program program, DType type);

// Throws Error naming a symbol that has no size.
void require_sizes(const Program& program, const DimValues& sizes);

// Throws Error naming a size that is none of the programs' symbols.
void refuse_other_sizes(std::span<const Program> programs, const DimValues& sizes);

// " M=16384 N=2048".
std::string text_of(const DimValues& sizes);

}  // namespace coda::tools
