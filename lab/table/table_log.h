// SPDX-License-Identifier: Apache-2.0
// What was timed for the shipped table, a line each as JSON, so that a later run goes on where one
// ended: kernels, as json_of has them, and before them what they were timed on. Lines that somebody
// adds by hand may say what a long run found: {"class": .., "extents": .., "long_run": ..}, the
// fastest configuration of a kernel.
#pragma once

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "gpu/configure/tuned_rows.h"

namespace coda::table {

class TableLog {
 public:
  // Lines that are no record are left out: a run may have ended within one.
  explicit TableLog(const std::string& file);

  // Throws Error if the file cannot be written.
  void add(const nlohmann::ordered_json& one);

  // Null if there is none.
  const nlohmann::ordered_json* find(const gpu::KernelClass& kernel) const;
  // The fastest configuration of a long run, as gpu::code writes it; empty if there was none.
  std::string long_run(const gpu::KernelClass& kernel) const;
  const std::string& measured_on() const { return measured_on_; }

 private:
  void keep(const nlohmann::ordered_json& one);

  std::string file_;
  bool ends_in_a_line_ = false;  // that is not whole
  std::ofstream out_;
  std::string measured_on_;
  std::map<std::string, nlohmann::ordered_json> kernels_;
  std::map<std::string, std::string> long_runs_;
};

}  // namespace coda::table
