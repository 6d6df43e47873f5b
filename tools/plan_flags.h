// SPDX-License-Identifier: Apache-2.0
// The plans that a command works on: one for each program file at given sizes, one for a graph and
// its backward, or one for a model's training step in bf16.
#pragma once

#include <string>
#include <vector>

#include "coda/compile.h"
#include "coda/kernels.h"
#include "coda/plan.h"
#include "coda/recompute.h"
#include "device_flag.h"
#include "flag_values.h"
#include "model_flags.h"

namespace CLI {
class App;
}

namespace coda::tools {

SizedPlan model_plan(const ModelConfig& config, int64_t batch, int64_t sequence,
                     Recompute recompute, EightBits eight_bits, double expert_capacity,
                     const Rates& rates);

struct ProgramFlags {
  std::vector<std::string> files;
  std::vector<std::string> sizes;
  ModelFlags model;
  int64_t batch = 1;
  int64_t sequence = 2048;
  double expert_capacity = 0;
  std::string dtype = "bf16";  // of a model's training step
  std::string objective = "memory";
  std::string recompute = "norms";
  std::string storage;  // of matrices that are fp32 in the files; empty: keep
  CardFlag gpu;         // the plans are made by its rates
  std::string target;

  ProgramFlags();
  void add_to(CLI::App& command);
  bool is_model() const { return files.empty(); }
  // For the card and the target.
  KernelOptions kernels() const { return gpu.kernels(target); }
  // Throws Error naming the file.
  std::vector<SizedPlan> plans() const;
};

}  // namespace coda::tools
