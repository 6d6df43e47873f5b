// SPDX-License-Identifier: Apache-2.0
// A whole kernel's text, which all emitters share: the program as a comment, what is included, the
// argument's names, what the emitter defines, the function.
#pragma once

#include <string>
#include <vector>

#include "gpu/codegen/launch_arguments.h"

namespace coda::gpu {

struct KernelParts {
  std::string function;
  std::vector<std::string> headers;  // "kernels/finalizer.cuh"
  std::string space = "coda::device";
  std::string before;  // definitions before the argument's names, and behind them
  std::string behind;
  std::string attributes;  // with the blank or the end of the line behind them
  std::string body;

  // A kernel without tensor cores: it has its definitions for itself, and lets its successor start.
  static KernelParts plain(std::string function, std::vector<std::string> headers,
                           const std::string& definitions, const std::string& attributes,
                           const std::string& scratch, const std::string& body);
};

// Throws Error, naming the program, if a launch has no so many blocks.
KernelLaunch launch_of(const KernelParts& text, const ProgramSizes& sizes,
                       const LaunchArguments& arguments, int64_t blocks, uint32_t threads);

}  // namespace coda::gpu
