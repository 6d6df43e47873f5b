// SPDX-License-Identifier: Apache-2.0
// How many rows a chunk has: what the options ask for, or what the rule at kAutomaticChunkRows
// says.
#pragma once

#include <string>

#include "coda/compile_request.h"
#include "rewrite/joint.h"

namespace coda {

struct ChunkRows {
  int64_t rows = 0;  // 0: everything is stored whole
  std::string why_whole{};
};

// Of a joint graph whose chunks were looked for.
ChunkRows choose_chunk_rows(const JointGraph& joint, const CompileOptions& options);

}  // namespace coda
