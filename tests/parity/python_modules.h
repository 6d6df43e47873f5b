// SPDX-License-Identifier: Apache-2.0
// Whether a Python has modules, without importing them: of PyTorch and transformers that takes
// seconds. Modules that are there but do not work fail the test that runs them.
#pragma once

#include <cstdlib>
#include <string>

namespace coda {

// `names` with blanks between them.
inline bool has_modules(const std::string& python, const std::string& names) {
  const std::string command = python +
                              " -c 'import sys; from importlib.util import find_spec; "
                              "sys.exit(not all(map(find_spec, sys.argv[1:])))' " +
                              names + " 2> /dev/null";
  return std::system(command.c_str()) == 0;
}

}  // namespace coda
