// SPDX-License-Identifier: Apache-2.0
// Storage and hash-consing of graph nodes; the checks and simplifications are in builders of their
// own (primitives.cc).
#include "coda/graph.h"

#include <bit>
#include <cmath>

#include "coda/error.h"

namespace coda {
namespace {

// A text that is equal for equal nodes: the key of the hash-consing index.
std::string key_of(const Node& n) {
  std::string key = std::to_string(static_cast<int>(n.op));
  auto put = [&key](const std::string& part) {
    key += '|';
    key += part;
  };
  for (int id : n.operands) put(std::to_string(id));
  switch (n.op) {
    case Op::elementwise: put("f" + std::to_string(static_cast<int>(n.fn))); break;
    case Op::constant: put(std::to_string(std::bit_cast<uint64_t>(n.number))); break;
    case Op::input: put(n.name); break;
    case Op::matmul:
      for (const Transposes& t : n.transposes)
        put((t.a ? "t" : "n") + std::string(t.b ? "t" : "n"));
      break;
    case Op::opaque:
      put(n.name);
      for (const auto& [name, value] : n.attributes) put(name + "=" + std::to_string(value));
      for (const auto& [name, size] : n.sizes) put(name + "=" + size.text());
      break;
    default:
      put(n.dim.text());
      put(std::to_string(n.which));
      put(std::to_string(n.repeat));
      put(n.shape.text());
      break;
  }
  return key;
}

}  // namespace

const Shape& Value::shape() const { return graph->node(id).shape; }

int Graph::intern(Node node) {
  auto [entry, is_new] = index_.try_emplace(key_of(node), size());
  if (is_new) nodes_.push_back(std::move(node));
  return entry->second;
}

Value Graph::input(const std::string& name, Shape shape, DType dtype, InputKind kind, Where where) {
  require(!inputs_.contains(name), "input \"" + name + "\" at " + where.file_name() + ":" +
                                       std::to_string(where.line()) +
                                       " is declared twice; give it another name");
  Node node;
  node.op = Op::input;
  node.shape = std::move(shape);
  node.name = name;
  node.kind = kind;
  node.dtype = dtype;
  const int id = intern(std::move(node));
  inputs_.emplace(name, id);
  return {this, id};
}

void Graph::become_input(int id, const std::string& name) {
  require(!inputs_.contains(name),
          "input \"" + name + "\" is declared twice; give it another name");
  Node node;
  node.op = Op::input;
  node.shape = nodes_[static_cast<size_t>(id)].shape;
  node.name = name;
  nodes_[static_cast<size_t>(id)] = std::move(node);
  inputs_.emplace(name, id);
}

int Graph::find_input(std::string_view name) const {
  auto found = inputs_.find(name);
  return found == inputs_.end() ? -1 : found->second;
}

Value Graph::constant(double number) {
  Node node;
  node.op = Op::constant;
  node.number = number;
  return {this, intern(std::move(node))};
}

Value Graph::reciprocal_dim(const Dim& dim) {
  if (dim.is_constant()) return constant(1.0 / static_cast<double>(dim.constant()));
  Node node;
  node.op = Op::reciprocal_dim;
  node.dim = dim;
  return {this, intern(std::move(node))};
}

Value Graph::ones(const Dim& cols) {
  Node node;
  node.op = Op::ones;
  node.shape = {1, cols};
  return {this, intern(std::move(node))};
}

Value Graph::column_index(const Dim& cols) {
  Node node;
  node.op = Op::column_index;
  node.shape = {1, cols};
  return {this, intern(std::move(node))};
}

bool is_positive(const Graph& graph, int id) {
  const Node& n = graph.node(id);
  if (n.op == Op::constant) return n.number > 0;
  if (n.op == Op::reciprocal_dim) return true;
  if (n.op != Op::elementwise) return false;
  switch (n.fn) {
    case Elementwise::rsqrt: return true;
    case Elementwise::recip: return is_positive(graph, n.operands[0]);
    case Elementwise::mul:
      return is_positive(graph, n.operands[0]) && is_positive(graph, n.operands[1]);
    default: return false;
  }
}

}  // namespace coda
