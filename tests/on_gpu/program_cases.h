// SPDX-License-Identifier: Apache-2.0
// The programs that run on a GPU in tests: written ones, those of compiled plans, and random ones
// with 16-bit operands.
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "coda/compile.h"
#include "gpu/lower.h"
#include "plan/blocks.h"
#include "program/random_program.h"

namespace coda::tests {

inline Program read_program(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return parse_program(text.str());
}

// All .coda files of a folder of the sources that the target has kernels for, by name; prints which
// others there are, and why.
inline std::vector<Program> written_programs(const std::string& folder) {
  std::set<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".coda") paths.insert(entry.path());
  }
  std::vector<Program> programs;
  for (const auto& path : paths) {
    Program program = read_program(path);
    const std::string why = gpu::why_not_supported(program, gpu::chosen_target());
    if (!why.empty()) {
      std::printf("left out: program '%s': %s\n", program.name.c_str(), why.c_str());
      continue;
    }
    programs.push_back(std::move(program));
  }
  return programs;
}

// Tensor cores multiply 16-bit numbers: operands of products become such, and what they share with
// other steps with them.
inline Program with_operands(Program program, DType type) {
  for (const Step& step : program.steps) {
    for (const GemmSegment& segment : step.segments()) {
      program.tensors[segment.a].dtype = type;
      program.tensors[segment.b].dtype = type;
    }
  }
  return program;
}

// The programs of a plan, both phases.
inline std::vector<Program> programs_of(const Plan& plan) {
  std::vector<Program> programs;
  for (const auto* steps : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *steps) {
      if (const auto* program = std::get_if<Program>(&step.work)) programs.push_back(*program);
    }
  }
  return programs;
}

}  // namespace coda::tests
