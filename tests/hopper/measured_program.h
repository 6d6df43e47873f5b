// SPDX-License-Identifier: Apache-2.0
// The programs that bench/hopper_programs measures, by name.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "coda/program.h"

namespace coda::hopper {

inline std::string measured_text(const std::string& name) {
  std::ifstream file(CODA_SOURCE_DIR "/bench/hopper_programs/programs/" + name + ".coda");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline Program measured_program(const std::string& name) {
  return parse_program(measured_text(name));
}

}  // namespace coda::hopper
