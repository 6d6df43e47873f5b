// SPDX-License-Identifier: Apache-2.0
// Reads files of programs, or of a graph, and checks the sizes that they are run with.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "coda/graph_text.h"
#include "coda/program_file.h"

namespace coda::tools {

// The symbols in the shapes of tensors and of values (column_index(N) reads no tensor).
std::set<std::string> symbols_of(const Program& program);

// The programs of the files, in order. `storage`: "", "bf16" or "f16". If it is not empty, matrices
// without a type in the text are stored in it, because GEMMs on a GPU need 16 bits. A type in the
// text is kept. Throws Error as read_programs.
std::vector<Program> read_programs_stored_as(const std::vector<std::string>& files,
                                             const std::string& storage);

// The graph of a file, which must be the only file; none if the files have programs. `storage` as
// above. Throws Error as read_graph, and for a graph among several files.
std::optional<NamedGraph> read_lone_graph(const std::vector<std::string>& files,
                                          const std::string& storage = "");

// Throws Error naming a size that is not a symbol of the graph.
void refuse_other_sizes(const NamedGraph& named, const DimValues& sizes);

// Throws Error naming a symbol without a size.
void require_sizes(const Program& program, const DimValues& sizes);

// Throws Error naming a size that is not a symbol of the programs.
void refuse_other_sizes(std::span<const Program> programs, const DimValues& sizes);

// " M=16384 N=2048".
std::string text_of(const DimValues& sizes);

}  // namespace coda::tools
