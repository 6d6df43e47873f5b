// SPDX-License-Identifier: Apache-2.0
// Maps each step to the graph operation whose tile it computes.
#include "coda/lift.h"

#include <algorithm>

#include "coda/error.h"
#include "program/lifting.h"
#include "program/step_table.h"

namespace coda {
namespace {

// Tensors that become tables: declared constants, row and column indices, masks, and tensors whose
// rows are gathered (the angles of positions).
bool is_table(const Program& program, int tensor) {
  const TensorDecl& decl = program.tensors[tensor];
  if (decl.is_constant || !is_floating(decl.dtype)) return true;
  return std::any_of(program.steps.begin(), program.steps.end(), [&](const Step& step) {
    return step.row_index() >= 0 && step.tensor() == tensor;
  });
}

bool is_input(Value value) { return value.graph->node(value.id).op == Op::input; }

}  // namespace

Value program::Lifting::read(int tensor) const {
  const TensorDecl& t = program.tensors[tensor];
  const auto found = tensors.values.find(t.name);
  if (found == tensors.values.end()) {
    const InputKind kind = is_table(program, tensor) ? InputKind::table : InputKind::activation;
    return tensors.values[t.name] = graph.input(t.name, t.shape, t.dtype, kind);
  }
  require(!t.is_constant || is_input(found->second),
          "program '" + program.name + "': tensor '" + t.name +
              "' is a constant here and made by a program before it; constants are inputs");
  require(found->second.shape() == t.shape, "program '" + program.name + "': tensor '" + t.name +
                                                "' has shape " + t.shape.text() + " here and " +
                                                found->second.shape().text() + " in the graph");
  return found->second;
}

void lift(const Program& program, Graph& graph, LiftedTensors& tensors) {
  verify(program);
  std::vector<Value> values;
  for (const Step& step : program.steps) {
    if (!program::is_effect(step)) {
      values.push_back(program::info(step.kind()).lift({program, step, graph, tensors, values}));
      continue;
    }
    const TensorDecl& stored = program.tensors[step.tensor()];
    require(!program::is_transposed_store(step),
            "program '" + program.name + "': " + std::string(program::name_of(step.kind())) + "('" +
                stored.name +
                "', ...) has no counterpart in a graph, whose tensors are stored in one order: "
                "leave it out, the compiler adds such steps itself");
    Value value = values[step.operands[0]];
    if (program::is_maximum(step)) {
      const program::Lifting lifting{program, step, graph, tensors, values};
      value = maximum(lifting.read(step.tensor()),
                      col_reduce(row_reduce(value, PartialKind::abs_max), PartialKind::max));
    }
    if (stored.kind == TensorKind::dense) {
      tensors.values[stored.name] = value;
      tensors.types[stored.name] = stored.dtype;
    } else {
      tensors.reduced[stored.name] = {value, step.partial(),
                                      stored.kind == TensorKind::row_partial};
    }
    values.emplace_back();  // an effect has no value
  }
}

void reduce_partials(LiftedTensors& tensors) {
  for (const auto& [name, partial] : tensors.reduced) {
    if (partial.is_combined) continue;
    const PartialInfo& kind = info(partial.kind);
    const Value x = partial.value;
    const auto reduced = [&](PartialKind k) {
      return partial.of_rows ? row_reduce(x, k) : col_reduce(x, k);
    };
    tensors.values[name] = reduced(partial.kind);
    if (!kind.needs_count) continue;
    const Dim& count = partial.of_rows ? x.shape().cols : x.shape().rows;
    tensors.values[name + ".mean"] = mul(reduced(PartialKind::sum), x.graph->reciprocal_dim(count));
  }
}

}  // namespace coda
