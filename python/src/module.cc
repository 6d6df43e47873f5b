// SPDX-License-Identifier: Apache-2.0
// The extension module coda_cpp._core: the compiler, plans and sessions. It knows nothing of
// PyTorch; memory passes as addresses. The package's Python files are what users see.
#include <algorithm>
#include <exception>
#include <string_view>

#include "bindings.h"
#include "coda/error.h"
#include "coda/version.h"

namespace coda::python {

Dim dim_of(const PythonDim& dim) {
  if (const auto* number = std::get_if<int64_t>(&dim)) return *number;
  return Dim::parse(std::get<std::string>(dim));
}

Terms terms_of(const Dim& dim) { return {dim.constant(), dim.terms()}; }

DimValues sizes_of(const PythonSizes& sizes) { return {sizes.begin(), sizes.end()}; }

DType dtype_of(const std::string& name) {
  std::string known;
  for (const DType dtype : kDTypes) {
    if (name == name_of(dtype)) return dtype;
    known += (known.empty() ? "" : ", ") + std::string(name_of(dtype));
  }
  throw Error("'" + name + "' is no storage type; there are " + known);
}

namespace {

// Without the lines of the bindings, which messages of builders name: " (built at FILE:LINE)",
// " at FILE:LINE". They mean nothing to a user, whose own line is in Python's traceback.
std::string without_places(std::string message) {
  for (const std::string_view start : {" (built at ", " at "}) {
    for (size_t place = 0; (place = message.find(start, place)) != std::string::npos;) {
      const size_t end = message.find_first_of(" )", place + start.size());
      const size_t length = std::min(end, message.size()) - place;
      if (message.substr(place, length).find("python/src/") == std::string::npos) {
        ++place;
      } else {
        message.erase(place, start[1] == '(' ? length + 1 : length);
      }
    }
  }
  return message;
}

}  // namespace
}  // namespace coda::python

NB_MODULE(_core, module) {
  namespace nb = nanobind;
  using namespace coda::python;  // NOLINT: the module is of these functions
  module.doc() = "The compiler and runtime of coda-cpp, without PyTorch; see coda_cpp.";
  nb::set_leak_warnings(false);  // PyTorch keeps operators, and so functions, to the very end
  module.attr("version") = std::string(coda::version());

  static const nb::exception<coda::Error> error(module, "Error", PyExc_ValueError);
  static const nb::exception<coda::InternalError> internal(module, "InternalError",
                                                           PyExc_RuntimeError);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const coda::Error& caught) {
      PyErr_SetString(error.ptr(), without_places(caught.what()).c_str());
    } catch (const coda::InternalError& caught) {
      PyErr_SetString(internal.ptr(), caught.what());
    }
  });

  bind_graph(module);
  bind_builders(module);
  bind_plan(module);
  bind_session(module);
}
