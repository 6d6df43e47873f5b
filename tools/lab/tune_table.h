// SPDX-License-Identifier: Apache-2.0
// `coda tune --table`: makes the table that is shipped. It takes minutes of a GPU, so what has been
// timed is kept in a log beside it, FILE.jsonl, and a later run goes on from there.
#pragma once

#include <string>
#include <vector>

#include "tune_jobs.h"

namespace coda::tools {

struct TableFlags {
  std::string file;  // that is written
  std::string benchmarks = "bench/hopper_programs/programs";
  // Kernels whose class and extents contain this; empty: all. Others keep the shipped row.
  std::string only;
  double limit = 150;  // seconds
};

// What matters most comes first, because time may run out.
std::vector<measure::TuneJob> table_jobs(const TableFlags& flags);

// Needs a GPU only for what is not in the log.
void make_table(const TableFlags& flags, measure::TuneOptions options);

}  // namespace coda::tools
