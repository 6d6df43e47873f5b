// SPDX-License-Identifier: Apache-2.0
#include "models/with_past.h"

#include <string>

#include "coda/operation.h"
#include "ir/rebuild.h"

namespace coda {
namespace {

// Calls that the logits are made of, operands before their readers.
std::vector<int> attention_calls(const Graph& graph, int logits) {
  std::vector<int> calls;
  const std::vector<bool> reached = reached_from(graph, {logits});
  for (int id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (reached[static_cast<size_t>(id)] && node.op == Op::opaque &&
        (node.name == "attention" || node.name == "attention_with_past"))
      calls.push_back(id);
  }
  return calls;
}

// The call over new operands, with the past of its layer.
Value call_with_past(Graph& graph, const Node& call, std::vector<Value> operands, size_t layer,
                     DType storage) {
  const std::string number = std::to_string(layer);
  const Dim keys = operands[1].shape().cols, values = operands[2].shape().cols;
  const Value past_keys = graph.table("past_keys." + number, {"P", keys}, storage);
  const Value past_values = graph.table("past_values." + number, {"P", values}, storage);
  const int known = graph.find_input("length");
  const Value length = known >= 0 ? graph.value(known) : graph.table("length", {1, 1}, DType::i32);
  // After q, k and v. The optional operand `sinks` stays the last one.
  operands.insert(operands.begin() + 3, {past_keys, past_values, length});
  return opaque_call("attention_with_past", operands, call.attributes)[0];
}

}  // namespace

std::vector<NamedValue> keys_and_values(ModelGraph& model) {
  std::vector<NamedValue> named;
  for (const int id : attention_calls(model.graph, model.logits.id)) {
    const std::string number = std::to_string(named.size() / 2);
    const Node& call = model.graph.node(id);
    const auto causal = call.attributes.find("causal");
    if (causal == call.attributes.end() || causal->second == 0) return {};
    named.push_back({"keys." + number, model.graph.value(call.operands[1])});
    named.push_back({"values." + number, model.graph.value(call.operands[2])});
  }
  return named;
}

std::unique_ptr<ModelGraph> with_past(const ModelGraph& model, DType storage) {
  auto result = std::make_unique<ModelGraph>();
  Graph& graph = result->graph;
  const std::vector<bool> reached = reached_from(model.graph, {model.logits.id});
  std::vector<Value> made(static_cast<size_t>(model.graph.size()));
  size_t layer = 0;
  for (int id = 0; id < model.graph.size(); ++id) {
    if (!reached[static_cast<size_t>(id)]) continue;
    const Node& node = model.graph.node(id);
    std::vector<Value> operands;
    for (const int operand : node.operands) operands.push_back(made[static_cast<size_t>(operand)]);
    const bool is_attention = node.op == Op::opaque && node.name == "attention";
    Value& value = made[static_cast<size_t>(id)];
    if (is_attention) {
      value = call_with_past(graph, node, operands, layer++, storage);
    } else if (node.op == Op::result && model.graph.node(node.operands[0]).name == "attention") {
      value = operands[0];  // its output; the call stands for that
    } else {
      value = rebuild(graph, node, operands);
    }
  }
  const auto input = [&](const char* name) {
    const int id = graph.find_input(name);
    return id >= 0 ? graph.value(id) : Value{};
  };
  result->ids = input("ids");
  result->positions = input("positions");
  result->tables = model.tables;
  result->parameters = model.parameters;
  for (ModelParameter& p : result->parameters) p.value = input(p.name.c_str());
  result->vocabulary = model.vocabulary;
  result->logits = made[static_cast<size_t>(model.logits.id)];
  return result;
}

}  // namespace coda
