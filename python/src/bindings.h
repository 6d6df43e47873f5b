// SPDX-License-Identifier: Apache-2.0
// What the parts of the extension module share: how sizes and types pass between Python and C++,
// and the parts themselves, one function a file.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "coda/dim.h"
#include "coda/dtype.h"
#include "coda/graph.h"

namespace coda::python {

namespace nb = nanobind;

// A size as Python gives it: a number, or text such as "M" and "2*I + 4".
using PythonDim = std::variant<int64_t, std::string>;
using PythonSizes = std::map<std::string, int64_t>;

// A constant, and how often each symbol adds.
using Terms = std::pair<int64_t, std::map<std::string, int64_t>>;

Dim dim_of(const PythonDim& dim);
Terms terms_of(const Dim& dim);
DimValues sizes_of(const PythonSizes& sizes);
// Error that lists the names unless it is one.
DType dtype_of(const std::string& name);

// A value keeps its graph, which a Value of C++ does not.
struct GraphValue {
  std::shared_ptr<Graph> graph;
  int id = -1;

  Value value() const { return graph->value(id); }
};

void bind_graph(nb::module_& module);
void bind_builders(nb::module_& module);
void bind_plan(nb::module_& module);
void bind_session(nb::module_& module);

}  // namespace coda::python
