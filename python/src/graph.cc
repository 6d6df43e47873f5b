// SPDX-License-Identifier: Apache-2.0
// Graphs and their values, with Python's operators.
#include <nanobind/operators.h>

#include "bindings.h"
#include "coda/error.h"
#include "coda/graph_text.h"

namespace coda::python {
namespace {

using Shape2 = std::pair<PythonDim, PythonDim>;

GraphValue input(const std::shared_ptr<Graph>& graph, const std::string& name, const Shape2& shape,
                 const std::string& dtype, InputKind kind) {
  const Shape size{dim_of(shape.first), dim_of(shape.second)};
  return {graph, graph->input(name, size, dtype_of(dtype), kind).id};
}

PythonDim python_dim(const Dim& dim) {
  if (dim.is_constant()) return dim.constant();
  return dim.text();
}

using Operand2 = std::variant<GraphValue, double>;

GraphValue binary(const GraphValue& a, const Operand2& b, bool swapped,
                  Value (*function)(const ValueOrNumber&, const ValueOrNumber&)) {
  const ValueOrNumber left = a.value();
  const auto* value = std::get_if<GraphValue>(&b);
  const ValueOrNumber right =
      value == nullptr ? ValueOrNumber(std::get<double>(b)) : ValueOrNumber(value->value());
  return {a.graph, (swapped ? function(right, left) : function(left, right)).id};
}

void bind_operators(nb::class_<GraphValue>& value) {
  const auto define = [&](const char* name, const char* reflected,
                          Value (*function)(const ValueOrNumber&, const ValueOrNumber&)) {
    value.def(
        name,
        [function](const GraphValue& a, const Operand2& b) {
          return binary(a, b, false, function);
        },
        nb::is_operator());
    value.def(
        reflected,
        [function](const GraphValue& a, const Operand2& b) { return binary(a, b, true, function); },
        nb::is_operator());
  };
  define("__add__", "__radd__", &coda::operator+);
  define("__sub__", "__rsub__", &coda::operator-);
  define("__mul__", "__rmul__", &coda::operator*);
  define("__truediv__", "__rtruediv__", &coda::operator/);
  value.def("__neg__", [](const GraphValue& a) {
    return GraphValue{a.graph, (-ValueOrNumber(a.value())).id};
  });
}

using Values = std::map<std::string, GraphValue>;
using Types = std::map<std::string, std::string>;

std::tuple<std::shared_ptr<Graph>, Values, nb::dict, Types> parse(const std::string& text,
                                                                  const std::string& file) {
  NamedGraph named = parse_graph(text, file);
  auto graph = std::make_shared<Graph>(std::move(named.graph));
  Values inputs;
  for (int id = 0; id < graph->size(); ++id) {
    const Node& node = graph->node(id);
    if (node.op == Op::input) inputs.emplace(node.name, GraphValue{graph, id});
  }
  nb::dict outputs;  // in the order of the text
  Types types;
  for (const NamedValue& output : named.outputs) {
    outputs[output.name.c_str()] = GraphValue{graph, output.value.id};
    if (output.dtype) types.emplace(output.name, name_of(*output.dtype));
  }
  return {graph, inputs, outputs, types};
}

std::string graph_text(Graph& graph, const nb::dict& outputs, const std::string& name,
                       const Types& types) {
  std::vector<NamedValue> all;
  for (const auto& [key, item] : outputs) {
    const auto value = nb::cast<GraphValue>(item);
    require(value.graph.get() == &graph, "Graph.text: an output is of another graph");
    NamedValue& output = all.emplace_back(nb::cast<std::string>(key), value.value());
    const auto type = types.find(output.name);
    if (type != types.end()) output.dtype = dtype_of(type->second);
  }
  return text(graph, all, name);
}

}  // namespace

void bind_graph(nb::module_& module) {
  nb::class_<GraphValue> value(module, "Value",
                               "A [rows, columns] value of a Graph. Sizes of 1 broadcast in + - * "
                               "/, as they do between a value and a number.");
  value.def_prop_ro("graph", [](const GraphValue& v) { return v.graph; });
  value.def_prop_ro("id", [](const GraphValue& v) { return v.id; });
  value.def_prop_ro("shape", [](const GraphValue& v) {
    const Shape& shape = v.graph->node(v.id).shape;
    return std::pair(python_dim(shape.rows), python_dim(shape.cols));
  });
  value.def_prop_ro(
      "terms",
      [](const GraphValue& v) {
        const Shape& shape = v.graph->node(v.id).shape;
        return std::pair(terms_of(shape.rows), terms_of(shape.cols));
      },
      "Of rows and columns: a constant, and how often each symbol adds.");
  value.def_prop_ro(
      "name", [](const GraphValue& v) { return v.graph->node(v.id).name; },
      "Of an input; else empty.");
  value.def_prop_ro(
      "dtype", [](const GraphValue& v) { return std::string(name_of(v.graph->node(v.id).dtype)); },
      "Of an input.");
  value.def_prop_ro(
      "is_table", [](const GraphValue& v) { return v.graph->node(v.id).kind == InputKind::table; });
  value.def("__repr__", [](const GraphValue& v) {
    const Node& node = v.graph->node(v.id);
    return "<coda_cpp.Value " + (node.name.empty() ? "%" + std::to_string(v.id) : node.name) + " " +
           node.shape.text() + ">";
  });
  bind_operators(value);

  const auto of_kind = [](InputKind kind) {
    return [kind](const std::shared_ptr<Graph>& graph, const std::string& name, const Shape2& shape,
                  const std::string& dtype) { return input(graph, name, shape, dtype, kind); };
  };
  nb::class_<Graph>(module, "Graph",
                    "What is computed, as single static assignment over [rows, columns] values.\n"
                    "Sizes are numbers or symbols ('M', '2*I'), which get their numbers when a\n"
                    "plan is run.")
      .def(nb::init<>())
      .def("input", of_kind(InputKind::activation), nb::arg("name"), nb::arg("shape"),
           nb::arg("dtype") = "f32", "What changes from run to run.")
      .def("parameter", of_kind(InputKind::parameter), nb::arg("name"), nb::arg("shape"),
           nb::arg("dtype") = "f32", "What is trained.")
      .def("table", of_kind(InputKind::table), nb::arg("name"), nb::arg("shape"),
           nb::arg("dtype") = "f32", "What is never differentiated: targets, positions, angles.")
      .def(
          "constant",
          [](const std::shared_ptr<Graph>& graph, double number) {
            return GraphValue{graph, graph->constant(number).id};
          },
          nb::arg("number"), "A number, [1, 1].")
      .def("__len__", [](const Graph& graph) { return graph.size(); })
      .def_static("parse", &parse, nb::arg("text"), nb::arg("file") = "text",
                  "The graph of a text (docs/program-text.md): it, its inputs and its outputs by "
                  "name, and the types of those outputs that the text gives one. Throws Error with "
                  "all mistakes, each with line and column.")
      .def(
          "text", &graph_text, nb::arg("outputs"), nb::arg("name") = "graph",
          nb::arg("types") = std::map<std::string, std::string>(),
          "What the outputs {name: value} are made of, as text that parse takes; `types` are those "
          "of outputs that have one.");
}

}  // namespace coda::python
