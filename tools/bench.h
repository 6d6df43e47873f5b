// SPDX-License-Identifier: Apache-2.0
// How `coda bench` shows what it measured.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "coda/measure.h"

namespace coda::tools {

struct Benched {
  Measured measured;
  std::string title;             // what, and its sizes
  nlohmann::ordered_json about;  // the same, for programs
  int64_t tokens = 0;            // 0: joules a token mean nothing
};

void print_table(const Benched& benched);
void print_json(const Benched& benched);

// coda bench start: what a first call, a warm start and a launch cost the host. Needs a GPU.
void bench_start(bool as_json);

}  // namespace coda::tools
