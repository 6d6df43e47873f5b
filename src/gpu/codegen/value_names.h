// SPDX-License-Identifier: Apache-2.0
// Names for the values in a tile space's CUDA struct. A value is named after the tensor that it is
// stored in or loaded from, or after its operation, so that the text reads like the program.
#pragma once

#include <map>
#include <string>

#include "gpu/codegen/launch_arguments.h"

namespace coda::gpu {

// Keeps a reference to the sizes.
class ValueNames {
 public:
  explicit ValueNames(const ProgramSizes& sizes);

  // `wanted`, or a similar name if it is taken.
  std::string make(const std::string& wanted) { return names_.make(wanted); }
  const std::string& of_step(int i);

 private:
  const ProgramSizes& sizes_;
  UniqueNames names_;
  std::map<int, std::string> of_steps_;
};

}  // namespace coda::gpu
