// SPDX-License-Identifier: Apache-2.0
// What a plan must compute: the block's graph differentiated as it was written, run node by node in
// float64.
#pragma once

#include <cmath>

#include "grad/differentiate.h"
#include "ir/evaluate_graph.h"
#include "ir/rebuild.h"
#include "plan/blocks.h"

namespace coda {

using Values = std::map<std::string, std::vector<double>>;

// Outputs and gradients by the names of the request.
inline Values plain_values(const Graph& source, const CompileRequest& request, const Values& inputs,
                           const DimValues& sizes) {
  Graph graph;
  clone(source, graph);
  std::vector<Seed> seeds;
  std::vector<int> wanted;
  for (const SeededOutput& s : request.seeds) {
    seeds.push_back({s.output.id, graph.value(s.cotangent.id)});
  }
  for (const GradientRequest& g : request.gradients) wanted.push_back(g.input.id);
  std::vector<int> roots;
  std::vector<std::string> names;
  for (const NamedValue& o : request.outputs) {
    roots.push_back(o.value.id);
    names.push_back(o.name);
  }
  const std::vector<Value> gradients = differentiate(graph, seeds, wanted);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].graph == nullptr) continue;
    roots.push_back(gradients[i].id);
    names.push_back(request.gradients[i].name);
  }
  const std::vector<Matrix> values = evaluate(graph, roots, inputs, sizes);
  Values out;
  for (size_t i = 0; i < names.size(); ++i) out[names[i]] = values[i].data;
  return out;
}

// |a - b|² / |b|².
inline double squared_error(const std::vector<double>& a, const std::vector<double>& b) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm > 0 ? error / norm : error;
}

}  // namespace coda
