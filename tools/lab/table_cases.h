// SPDX-License-Identifier: Apache-2.0
// What the shipped table of configurations covers: the training steps of common models at common
// numbers of tokens, and the programs that the benchmarks measure.
#pragma once

#include <string>
#include <vector>

#include "sized_programs.h"

namespace coda::tools {

struct TableModel {
  std::string name;
  ModelConfig config;
};
// LLaMA-3, Qwen3 (as LLaMA: without norms of heads) and GPT-2, two layers of each, and three whose
// hidden sizes are powers of two.
std::vector<TableModel> table_models();

// Tokens at which the table is measured; between and beyond them the model goes on from there.
std::vector<int64_t> table_tokens();

// All programs with products of all models, for one number of tokens.
std::vector<SizedProgram> table_programs(int64_t tokens);

// The benchmarks' programs, read from `folder`.
std::vector<SizedProgram> benchmark_programs(const std::string& folder);

}  // namespace coda::tools
