// SPDX-License-Identifier: Apache-2.0
#include "coda/run_graph.h"

#include "coda/error.h"
#include "ir/rebuild.h"
#include "measure/given_inputs.h"
#include "measure/graph_inputs.h"
#include "measure/host_tensor.h"

namespace coda {

std::set<std::string> symbols_of(const NamedGraph& named) {
  std::set<std::string> symbols;
  const auto add = [&](const Dim& dim) {
    for (const auto& [symbol, factor] : dim.terms()) symbols.insert(symbol);
  };
  std::vector<int> roots;
  for (const NamedValue& output : named.outputs) roots.push_back(output.value.id);
  const std::vector<bool> reached = reached_from(named.graph, roots);
  for (int id = 0; id < named.graph.size(); ++id) {
    if (!reached[static_cast<size_t>(id)]) continue;
    const Node& n = named.graph.node(id);
    for (const Dim& dim : {n.shape.rows, n.shape.cols, n.dim, n.repeat}) add(dim);
    for (const auto& [name, size] : n.sizes) add(size);
  }
  return symbols;
}

DimValues sizes_of_inputs(const NamedGraph& named, const Arrays& inputs, const DimValues& known) {
  const DimValues sizes =
      measure::sizes_of(measure::inputs_of(named), inputs, known,
                        {"the graph reads", "the graph does not read", "it reads"});
  for (const std::string& symbol : symbols_of(named)) {
    require(sizes.contains(symbol), "no input of the graph has the size " + symbol +
                                        ": give it, as in --sizes " + symbol + "=128");
  }
  return sizes;
}

RunResult run_graph(const NamedGraph& named, const DimValues& sizes, const Arrays& inputs,
                    Backend& backend) {
  measure::GivenInputs given = measure::rounded_inputs(measure::inputs_of(named), inputs);
  for (const auto& [index, limit] : measure::index_limits(named)) {
    const Node& n = named.graph.node(named.graph.find_input(index));
    if (n.dtype == DType::i32 || is_floating(n.dtype))
      measure::require_rows(index, given.values.at(index), limit.of, limit.count.evaluate(sizes));
  }
  const measure::GraphRun run = measure::run_plan_of(named, sizes, given.values, backend, false);
  RunResult result{.notes = std::move(given.notes)};
  for (const auto& [name, decl] : run.decls)
    result.results.push_back({name, decl.dtype, measure::array_of(decl, run.outputs.at(name))});
  return result;
}

}  // namespace coda
