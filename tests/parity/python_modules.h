// SPDX-License-Identifier: Apache-2.0
// The Python interpreter that runs the judges of parity tests. Modules are looked for and not
// imported, because an import of PyTorch and transformers takes seconds. A module that is installed
// but does not work fails the test that runs it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace coda {

inline constexpr const char* kNoJudges =
    "no Python with the judges' packages; `scripts/setup.sh judges` installs them";

// `names`: separated by blanks.
inline bool has_modules(const std::string& python, const std::string& names) {
  const std::string command = python +
                              " -c 'import sys; from importlib.util import find_spec; "
                              "sys.exit(not all(map(find_spec, sys.argv[1:])))' " +
                              names + " 2> /dev/null";
  return std::system(command.c_str()) == 0;
}

// The interpreter of `source`/.venv if that exists, else python3; none if it lacks one of the
// modules.
inline std::optional<std::string> python_with(const std::string& names,
                                              const std::filesystem::path& source) {
  const std::filesystem::path venv = source / ".venv/bin/python";
  const std::string python = std::filesystem::exists(venv) ? venv.string() : "python3";
  if (!has_modules(python, names)) return std::nullopt;
  return python;
}

}  // namespace coda
