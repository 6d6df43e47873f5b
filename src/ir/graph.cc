// SPDX-License-Identifier: Apache-2.0
// Storage and hash-consing of graph nodes; the checks and simplifications are in builders of their
// own (primitives.cc).
#include "coda/graph.h"

#include <bit>
#include <cmath>

#include "coda/error.h"
#include "ir/check.h"

namespace coda {
namespace {

// Error unless the size can be one: what depends on symbols only a session can tell.
void check_size(const Dim& size, const std::string& what, const Where& where) {
  if (size.is_constant() && size.constant() <= 0) {
    throw Error(what + at(where) + " has the size " + size.text() + "; sizes are positive");
  }
}

uint64_t bits_of(double number) { return std::bit_cast<uint64_t>(number); }

// Equal nodes are one object. Constants by their bits: 0 and -0 are two, NaN is itself. What an
// input or a call is besides follows from its name.
bool is_same(const Node& a, const Node& b) {
  return a.op == b.op && a.fn == b.fn && a.reduction == b.reduction && a.operands == b.operands &&
         bits_of(a.number) == bits_of(b.number) && a.which == b.which && a.repeat == b.repeat &&
         a.dim == b.dim && a.shape == b.shape && a.transposes == b.transposes && a.name == b.name &&
         a.attributes == b.attributes && a.sizes == b.sizes;
}

size_t hash_of(const Node& n) {
  size_t hash = std::hash<std::string>()(n.name);
  const auto mix = [&hash](uint64_t part) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  };
  mix(static_cast<uint64_t>(n.op) << 16 | static_cast<uint64_t>(n.reduction) << 8 |
      static_cast<uint64_t>(n.fn));
  for (int operand : n.operands) mix(static_cast<uint64_t>(operand));
  for (const Transposes& t : n.transposes) mix((t.a ? 2U : 0U) + (t.b ? 1U : 0U));
  mix(bits_of(n.number));
  mix(static_cast<uint64_t>(n.which));
  mix(static_cast<uint64_t>(n.dim.constant()));
  mix(static_cast<uint64_t>(n.shape.cols.constant()));
  return hash;
}

}  // namespace

Graph::Graph(const Graph& other)
    : nodes_(other.nodes_), index_(other.index_), inputs_(other.inputs_) {}

Graph::Graph(Graph&& other) noexcept
    : home_(std::move(other.home_)),
      nodes_(std::move(other.nodes_)),
      index_(std::move(other.index_)),
      inputs_(std::move(other.inputs_)) {
  if (home_ != nullptr) *home_ = this;
}

Graph& Graph::operator=(Graph&& other) noexcept {
  if (this == &other) return *this;
  home_ = std::move(other.home_);
  if (home_ != nullptr) *home_ = this;
  nodes_ = std::move(other.nodes_);
  index_ = std::move(other.index_);
  inputs_ = std::move(other.inputs_);
  return *this;
}

const Shape& Value::shape() const { return graph->node(id).shape; }

int Graph::intern(Node node) {
  const size_t hash = hash_of(node);
  const auto [first, last] = index_.equal_range(hash);
  for (auto entry = first; entry != last; ++entry) {
    if (is_same(nodes_[static_cast<size_t>(entry->second)], node)) return entry->second;
  }
  index_.emplace(hash, size());
  nodes_.push_back(std::move(node));
  return size() - 1;
}

Value Graph::input(const std::string& name, Shape shape, DType dtype, InputKind kind, Where where) {
  const std::string what = "input \"" + name + "\"";
  require(!inputs_.contains(name), what + at(where) + " is declared twice; give it another name");
  check_size(shape.rows, what, where);
  check_size(shape.cols, what, where);
  Node node{.op = Op::input, .shape = std::move(shape), .name = name, .kind = kind, .dtype = dtype};
  const int id = intern(std::move(node));
  inputs_.emplace(name, id);
  return {this, id};
}

void Graph::become_input(int id, const std::string& name) {
  require(!inputs_.contains(name),
          "input \"" + name + "\" is declared twice; give it another name");
  Node node{.op = Op::input, .shape = nodes_[static_cast<size_t>(id)].shape, .name = name};
  nodes_[static_cast<size_t>(id)] = std::move(node);
  inputs_.emplace(name, id);
}

int Graph::find_input(std::string_view name) const {
  auto found = inputs_.find(name);
  return found == inputs_.end() ? -1 : found->second;
}

Value Graph::constant(double number) {
  Node node{.op = Op::constant, .number = number};
  return {this, intern(std::move(node))};
}

Value Graph::reciprocal_dim(const Dim& dim, Where where) {
  check_size(dim, "reciprocal_dim", where);
  if (dim.is_constant()) return constant(1.0 / static_cast<double>(dim.constant()));
  Node node{.op = Op::reciprocal_dim, .dim = dim};
  return {this, intern(std::move(node))};
}

Value Graph::ones(const Dim& cols, Where where) {
  check_size(cols, "ones", where);
  if (cols.is(1)) return constant(1);
  Node node{.op = Op::ones, .shape = {1, cols}};
  return {this, intern(std::move(node))};
}

Value Graph::column_index(const Dim& cols, Where where) {
  check_size(cols, "column_index", where);
  if (cols.is(1)) return constant(0);
  Node node{.op = Op::column_index, .shape = {1, cols}};
  return {this, intern(std::move(node))};
}

namespace {

// `nodes`: how many may be looked at. Powers of powers have exponentially many factors.
bool is_positive(const Graph& graph, int id, int& nodes) {
  if (--nodes < 0) return false;
  const Node& n = graph.node(id);
  if (n.op == Op::constant) return n.number > 0;
  if (n.op == Op::reciprocal_dim) return true;
  if (n.op != Op::elementwise) return false;
  switch (n.fn) {
    case Elementwise::rsqrt: return true;
    case Elementwise::recip: return is_positive(graph, n.operands[0], nodes);
    case Elementwise::mul:
      return is_positive(graph, n.operands[0], nodes) && is_positive(graph, n.operands[1], nodes);
    default: return false;
  }
}

}  // namespace

bool is_positive(const Graph& graph, int id) {
  int nodes = 1000;
  return is_positive(graph, id, nodes);
}

}  // namespace coda
