// SPDX-License-Identifier: Apache-2.0
#include "measure/graph_inputs.h"

#include <algorithm>
#include <cmath>

#include "base/stored_element.h"
#include "coda/compile.h"
#include "coda/graph_request.h"
#include "coda/session.h"
#include "ir/rebuild.h"
#include "measure/host_tensor.h"
#include "measure/random_inputs.h"

namespace coda::measure {
namespace {

// Calls it for each node that outputs reach.
void for_each_node(const NamedGraph& named, const auto& look) {
  std::vector<int> roots;
  for (const NamedValue& output : named.outputs) roots.push_back(output.value.id);
  const std::vector<bool> reached = reached_from(named.graph, roots);
  for (int id = 0; id < named.graph.size(); ++id) {
    if (reached[static_cast<size_t>(id)]) look(named.graph.node(id));
  }
}

}  // namespace

std::map<std::string, TensorDecl> inputs_of(const NamedGraph& named) {
  std::map<std::string, TensorDecl> inputs;
  for_each_node(named, [&](const Node& n) {
    if (n.op == Op::input) inputs[n.name] = {.name = n.name, .shape = n.shape, .dtype = n.dtype};
  });
  return inputs;
}

std::map<std::string, IndexLimit> index_limits(const NamedGraph& named) {
  std::map<std::string, IndexLimit> limits;
  for_each_node(named, [&](const Node& n) {
    const bool is_lookup = n.op == Op::gather_rows || (n.op == Op::opaque && n.name == "embedding");
    if (!is_lookup && n.op != Op::select_column) return;
    const Node& index = named.graph.node(n.operands[1]);
    const Node& of = named.graph.node(n.operands[0]);
    if (index.op != Op::input) return;
    const bool is_named = of.op == Op::input;
    limits.try_emplace(index.name, IndexLimit{is_named ? of.name : "what it indexes",
                                              is_lookup ? of.shape.rows : of.shape.cols});
  });
  return limits;
}

GraphValues random_graph_inputs(const NamedGraph& named, const DimValues& sizes, uint64_t seed) {
  std::map<std::string, InputUse> uses = uses_of_inputs(named);
  GraphValues values;
  for (const auto& [name, decl] : inputs_of(named)) {
    values[name] = drawn(decl, uses[name], sizes, seed, true);
    // A product with a weight is as large as what it is a product of.
    const Node& node = named.graph.node(named.graph.find_input(name));
    if (node.kind != InputKind::parameter || !node.shape.is_tensor()) continue;
    const double scale = std::sqrt(3 / static_cast<double>(decl.shape.cols.evaluate(sizes)));
    for (double& x : values[name]) x = rounded_to(decl.dtype, scale * x);
  }
  return values;
}

double evaluation_seconds(const NamedGraph& named, const DimValues& sizes) {
  constexpr double kMultiplyAdds = 8e8;  // a second
  constexpr double kElements = 2e8;
  double seconds = 0;
  for_each_node(named, [&](const Node& n) {
    const auto elements = static_cast<double>(n.shape.rows.evaluate(sizes)) *
                          static_cast<double>(n.shape.cols.evaluate(sizes));
    seconds += elements / kElements;
    for (size_t s = 0; s < n.transposes.size(); ++s) {
      const Shape& a = named.graph.node(n.operands[2 * s]).shape;
      seconds += elements *
                 static_cast<double>((n.transposes[s].a ? a.rows : a.cols).evaluate(sizes)) /
                 kMultiplyAdds;
    }
    // Attention takes a product of rows by rows, and no operation more.
    if (n.op == Op::opaque) {
      const Shape& first = named.graph.node(n.operands[0]).shape;
      const auto rows = static_cast<double>(first.rows.evaluate(sizes));
      seconds += rows * rows * static_cast<double>(first.cols.evaluate(sizes)) / kMultiplyAdds;
    }
  });
  return seconds;
}

GraphRun run_plan_of(const NamedGraph& named, const DimValues& sizes, const GraphValues& inputs,
                     Backend& backend, bool poison) {
  NamedGraph copy = named;
  const CompileRequest request = graph_request(copy, false);
  CompileOptions options;
  options.sizes = sizes;
  options.rates = backend.rates();
  options.storage = usual_storage(named);
  Session session(compile(copy.graph, request, options).plan, backend, sizes, {.poison = poison});
  TensorMap bound = session.allocate();
  for (const auto& [name, decl] : inputs_of(named)) {
    const auto tensor = bound.find(name);  // an input whose terms cancel is none of the plan
    if (tensor != bound.end())
      tensor->second.copy_from(on_host(decl, sizes, inputs.at(name)).view());
  }
  session.forward();
  GraphRun run;
  for (const NamedValue& output : request.outputs) {
    run.outputs[output.name] = bound.at(output.name);
    run.decls[output.name] = session.plan().tensor(output.name).decl;
  }
  return run;
}

}  // namespace coda::measure
