// SPDX-License-Identifier: Apache-2.0
// Names in a tile space's CUDA struct: a step's value is called after the tensor that it is stored
// in or loaded from, or after what it is, so that the text reads like its program.
#pragma once

#include <map>
#include <string>

#include "gpu/codegen/launch_arguments.h"

namespace coda::gpu {

// Refers to the sizes, which outlive it.
class ValueNames {
 public:
  explicit ValueNames(const ProgramSizes& sizes);

  // `wanted`, or what is nearest to it and not yet taken.
  std::string make(const std::string& wanted) { return names_.make(wanted); }
  const std::string& of_step(int i);

 private:
  const ProgramSizes& sizes_;
  UniqueNames names_;
  std::map<int, std::string> of_steps_;
};

}  // namespace coda::gpu
