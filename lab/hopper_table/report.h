// SPDX-License-Identifier: Apache-2.0
// Results as a table on the standard output and as JSON lines in a file, one object a candidate.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "lab/hopper_table/problem.h"
#include "measure/gpu_timer.h"

namespace coda::hopper_table {

using measure::Candidate;

class Report {
 public:
  // An empty path writes no file.
  explicit Report(const std::string& json_path);
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  // `peers` are cuBLAS's algorithms; ratios are to the fastest of them in each regime. Prints the
  // candidates that have a sustained or cool figure, or all if `screening`.
  void add(const Shape& shape, const std::vector<Candidate*>& peers,
           const std::vector<Candidate*>& ours, bool screening);

 private:
  std::FILE* json_ = nullptr;
};

}  // namespace coda::hopper_table
