// SPDX-License-Identifier: Apache-2.0
// Prints what `coda bench` measured.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "coda/measure.h"

namespace coda::tools {

struct Benched {
  Measured measured;
  std::string title;             // what was measured, and its sizes
  nlohmann::ordered_json about;  // the same as JSON
  int64_t tokens = 0;            // 0: joules per token are meaningless
};

void print_table(const Benched& benched);
void print_json(const Benched& benched);

// coda bench start: host time of a first call, a warm start and a launch. Needs a GPU.
void bench_start(bool as_json);

}  // namespace coda::tools
