// SPDX-License-Identifier: Apache-2.0
// The one table of operations: those of this folder, then what programs register. Entries stay
// where they are, so that nodes of graphs point to them.
#include <algorithm>
#include <cctype>
#include <deque>
#include <mutex>

#include "base/nearest_name.h"
#include "coda/error.h"
#include "coda/operation.h"
#include "ir/check.h"
#include "operations/builtin.h"

namespace coda {
namespace {

std::string quoted(std::string_view name) { return "\"" + std::string(name) + "\""; }

struct Registry {
  std::mutex mutex;
  std::deque<Operation> operations{attention_operation(),           attention_backward_operation(),
                                   attention_with_past_operation(), embedding_operation(),
                                   embedding_backward_operation(),  top_k_mask_operation(),
                                   marked_rows_operation(),         gather_operation(),
                                   scatter_add_operation()};

  const Operation* find(std::string_view name) const {
    const auto found = std::find_if(operations.begin(), operations.end(),
                                    [&](const Operation& o) { return o.name == name; });
    return found == operations.end() ? nullptr : &*found;
  }
};

Registry& registry() {
  static Registry all;
  return all;
}

bool is_identifier(std::string_view name) {
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  return !name.empty() && (letter(name[0]) || name[0] == '_') &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return letter(c) || c == '_' || (c >= '0' && c <= '9'); });
}

}  // namespace

const Operation& register_operation(Operation operation) {
  const std::string what = "register_operation(" + quoted(operation.name) + "): ";
  require(is_identifier(operation.name), what + "the name must be an identifier");
  require(operation.results != nullptr, what + "results, the shapes rule, is missing");
  require(operation.evaluate != nullptr, what + "evaluate, the value in float64, is missing");
  require(operation.gpu == nullptr || operation.gpu_function == nullptr,
          what + "gpu and gpu_function are two ways to the same; give one");
  require(!operation.can_add || operation.optional_operands.empty(),
          what + "an operation with optional operands cannot add its result to another operand");
  for (const std::string& name : operation.optional_operands) {
    const auto attribute = operation.attributes.find(name);
    require(attribute != operation.attributes.end() && attribute->second == 0,
            what + "the optional operand " + quoted(name) +
                " needs an attribute of its name with the default 0");
  }
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  require(all.find(operation.name) == nullptr, what + "there is an operation of that name");
  all.operations.push_back(std::move(operation));
  return all.operations.back();
}

const Operation& find_operation(std::string_view name) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  if (const Operation* found = all.find(name)) return *found;
  std::vector<std::string> known;
  for (const Operation& o : all.operations) known.push_back(o.name);
  throw Error("no operation " + quoted(name) + " is registered" + nearest_name(name, known));
}

std::vector<Value> opaque_call(std::string_view name, const std::vector<Value>& operands,
                               const std::map<std::string, double>& attributes,
                               const std::map<std::string, Dim>& sizes, Where where) {
  const std::string op(name);
  Graph& graph = graph_of(op.c_str(), operands, where);
  std::vector<OperationResult> results;
  std::vector<Shape> shapes;
  Node node;
  try {
    const Operation* const found = node.operation = &find_operation(name);
    const OperationSettings settings = checked_settings(*found, attributes, sizes);
    const size_t declared = operand_count(*found, settings);
    const bool adds = found->can_add && operands.size() == declared + 1;
    require(
        operands.size() == declared || adds,
        "takes " + std::to_string(declared) + " operands, not " + std::to_string(operands.size()));
    for (const Value& v : operands) shapes.push_back(v.shape());
    if (adds) shapes.pop_back();
    results = found->results(settings, shapes);
    require(!results.empty(), "has no results");
    require(!adds || (results.size() == 1 && operands.back().shape() == results[0].shape),
            "what the result is added to must have its shape, " + results[0].shape.text());
  } catch (const Error& error) {
    fail(op.c_str(), operands, error.what(), where);
  }
  node.op = Op::opaque;
  node.name = op;
  for (const Value& v : operands) node.operands.push_back(v.id);
  for (const auto& [attribute, value] : attributes) {
    // Calls that differ in a default that was written down are one call.
    if (node.operation->attributes.at(attribute) != value) node.attributes[attribute] = value;
  }
  node.sizes = sizes;
  for (const OperationResult& r : results) {
    node.results.push_back(r.shape);
    node.result_is_fp32.push_back(r.fp32);
  }
  const int call = graph.intern(std::move(node));
  std::vector<Value> values;
  for (size_t i = 0; i < results.size(); ++i) {
    Node result{.op = Op::result,
                .shape = results[i].shape,
                .operands = {call},
                .which = static_cast<int>(i)};
    values.push_back(graph.value(graph.intern(std::move(result))));
  }
  return values;
}

}  // namespace coda
