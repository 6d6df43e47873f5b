// SPDX-License-Identifier: Apache-2.0
// Chooses the rows of a block: from the options, or by the rule at kAutomaticChunkRows.
#pragma once

#include <string>

#include "coda/compile_request.h"
#include "rewrite/joint.h"

namespace coda {

struct ChunkRows {
  int64_t rows = 0;  // 0: store everything whole
  std::string why_whole{};
};

// `joint`: a joint graph whose values for blocks were found.
ChunkRows choose_chunk_rows(const JointGraph& joint, const CompileOptions& options);

}  // namespace coda
