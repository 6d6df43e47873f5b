// SPDX-License-Identifier: Apache-2.0
// --formula model.py:function: what a program should compute, as a Python function over NumPy.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "coda/array.h"
#include "coda/program.h"

namespace coda::tools {

struct PythonFunction {
  std::string file;
  std::string name;
};

// Nothing unless the word is FILE.py:NAME.
std::optional<PythonFunction> python_function(const std::string& word);

// Runs python3, which must find numpy. The function is called with those of the inputs that its
// parameters name, and returns a dictionary of what programs store, or one array that goes by the
// function's name. Index tensors of the programs, and sizes, are whole numbers there. Throws Error
// with the last line that Python says.
Arrays call_python(const PythonFunction& function, std::span<const Program> programs,
                   const Arrays& inputs);

}  // namespace coda::tools
