// SPDX-License-Identifier: Apache-2.0
// The vocabulary of program text (docs/program-text.md), taken from the tables that define it: for
// editors and for code generators in other languages.
#pragma once

#include <string_view>
#include <vector>

#include "coda/api.h"

namespace CODA_API coda {

struct Language {
  std::vector<std::string_view> functions;   // functions with a value: gemm, tile, ...
  std::vector<std::string_view> operations;  // elementwise: add, silu, ...
  std::vector<std::string_view> effects;     // store, row_partial, ...
  std::vector<std::string_view> reductions;  // sum, log_sum_exp, ...
  std::vector<std::string_view> types;       // f32, bf16, ...
};
Language language();

}  // namespace CODA_API coda
