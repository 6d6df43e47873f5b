// SPDX-License-Identifier: Apache-2.0
// --formula model.py:function: the expected results as a Python function over NumPy arrays.
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

// None unless the word is FILE.py:NAME.
std::optional<PythonFunction> python_function(const std::string& word);

// Runs python3, which must have numpy. Calls the function with the inputs that its parameters name.
// The function returns a dictionary of what programs store, or a single array, which gets the
// function's name. Index tensors and sizes are integers. Throws Error with the last line of
// Python's message.
Arrays call_python(const PythonFunction& function, std::span<const Program> programs,
                   const Arrays& inputs);

}  // namespace coda::tools
