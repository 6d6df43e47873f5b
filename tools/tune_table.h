// SPDX-License-Identifier: Apache-2.0
// `coda tune --table`: makes the table that is shipped, whole or a part of it at a time, since all
// of it takes many minutes of a GPU.
#pragma once

#include <string>
#include <vector>

#include "tune_jobs.h"

namespace coda::tools {

struct TableFlags {
  std::string file;  // that is written
  std::string benchmarks = "bench/hopper_programs/programs";
  // Kernels whose class and extents contain this; empty: all. What is not timed keeps its row.
  std::string only;
  bool only_missing = false;  // kernels that have no row in the shipped table
  double limit = 150;         // seconds
};

// What matters most comes first, because time may run out.
std::vector<measure::TuneJob> table_jobs(const TableFlags& flags);

void make_table(const TableFlags& flags, measure::TuneOptions options, TuneGpu& gpu);

}  // namespace coda::tools
