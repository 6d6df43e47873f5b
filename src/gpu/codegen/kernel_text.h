// SPDX-License-Identifier: Apache-2.0
// Assembles a kernel's whole text, for all emitters: the program as a comment, includes, names of
// the argument's fields, the emitter's definitions, the function.
#pragma once

#include <string>
#include <vector>

#include "gpu/codegen/launch_arguments.h"

namespace coda::gpu {

struct KernelParts {
  std::string function;
  std::vector<std::string> headers;  // "kernels/finalizer.cuh"
  std::string space = "coda::device";
  std::string before;  // definitions before and after the argument's names
  std::string behind;
  std::string attributes;  // including the trailing blank or newline
  std::string body;

  // For a kernel without tensor cores: it keeps its definitions in its own namespace and lets its
  // successor start early.
  static KernelParts plain(std::string function, std::vector<std::string> headers,
                           const std::string& definitions, const std::string& attributes,
                           const std::string& scratch, const std::string& body);
};

// Throws Error, naming the program, if the grid is too large for a launch.
KernelLaunch launch_of(const KernelParts& text, const ProgramSizes& sizes,
                       const LaunchArguments& arguments, int64_t blocks, uint32_t threads);

}  // namespace coda::gpu
