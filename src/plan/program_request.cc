// SPDX-License-Identifier: Apache-2.0
// Requests each lifted store as an output with its declared type.
#include "coda/lift.h"
#include "plan/gradient_requests.h"

namespace coda {

CompileRequest program_request(Graph& graph, const LiftedTensors& tensors, bool with_gradients) {
  CompileRequest request;
  std::vector<std::string> names;
  const IsUsed is_used = [&](const std::string& name) { return tensors.values.contains(name); };
  for (const auto& [name, value] : tensors.values) {
    if (graph.node(value.id).name == name) continue;  // only read
    const bool in_place = graph.find_input(name) >= 0;
    const auto declared = tensors.types.find(name);  // none for the whole reduction of a partial
    const std::optional<DType> type = declared == tensors.types.end()
                                          ? std::nullopt
                                          : gradient_type(value.shape(), declared->second);
    request.outputs.push_back(
        {in_place ? free_name(graph, is_used, name + ".stored") : name, value, type});
    names.push_back(name);
  }
  if (with_gradients) request_gradients(graph, names, is_used, request);
  return request;
}

}  // namespace coda
