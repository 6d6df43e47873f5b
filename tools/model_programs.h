// SPDX-License-Identifier: Apache-2.0
// The programs that a command is about: those of files at given sizes, or those of a model's
// training step in bf16.
#pragma once

#include <string>
#include <vector>

#include "coda/compile.h"
#include "coda/plan.h"
#include "hopper/kernel_launch.h"
#include "model_flags.h"

namespace CLI {
class App;
}

namespace coda::tools {

struct SizedProgram {
  Program program;
  DimValues sizes;
  hopper::LowerOptions options;  // with row strides
};

// `pads`: rows of matrices are padded to 16 bytes, as a plan's own buffers are; else dense.
SizedProgram sized_program(const Program& program, const DimValues& sizes, bool pads);

struct ModelPrograms {
  Plan plan;
  DimValues sizes;  // of its symbols
  std::vector<SizedProgram> programs;
};
// The launches of the plan's opaque calls.
std::vector<hopper::KernelLaunch> opaque_launches(const ModelPrograms& model);

ModelPrograms model_programs(const ModelConfig& config, int64_t batch, int64_t sequence,
                             Objective objective);

struct ProgramFlags {
  std::vector<std::string> files;
  std::vector<std::string> sizes;
  ModelFlags model;
  int64_t batch = 1;
  int64_t sequence = 2048;
  std::string objective = "memory";
  std::string storage;  // of matrices that are fp32 in the files; empty: as they are

  ProgramFlags();
  void add_to(CLI::App& command);
  bool is_model() const { return files.empty(); }
  // Throws Error naming the file.
  std::vector<SizedProgram> programs() const;
  ModelPrograms of_model() const;
};

}  // namespace coda::tools
