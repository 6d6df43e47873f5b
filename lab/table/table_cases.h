// SPDX-License-Identifier: Apache-2.0
// What the shipped table of configurations covers: the training steps of common models at common
// numbers of tokens, and the programs that the benchmarks measure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "measure/tune.h"

namespace coda::table {

// A program with sizes and row strides, as the GPU backend lowers them.
struct SizedProgram {
  Program program;
  DimValues sizes;
  std::vector<int64_t> row_strides;  // rows of matrices begin at multiples of 16 bytes
};

struct TableCase {
  std::string name;  // "LLaMA-3 8B, 4096 tokens", or "benchmarks"
  std::function<std::vector<SizedProgram>()> programs;  // those with products; plans the model
};

// A training step of each model in bf16, for so many tokens: LLaMA-3, Qwen3 (as LLaMA: without
// norms of heads) and GPT-2, two layers of each, and three whose hidden sizes are powers of two.
std::vector<TableCase> model_cases(int64_t tokens);

// All that the table is measured at, what matters most first, because time may run out. The
// benchmarks' programs are read from `benchmarks`, a folder.
std::vector<TableCase> table_cases(const std::string& benchmarks);

// The kernels of the cases with `text` in their name. Throws Error if one of their programs cannot
// be made: they are ours.
std::vector<measure::TuneJob> jobs_of(const std::vector<TableCase>& cases, const std::string& text,
                                      bool uses_table);

}  // namespace coda::table
