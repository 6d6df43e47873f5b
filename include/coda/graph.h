// SPDX-License-Identifier: Apache-2.0
// The Graph: a computation in static single assignment form over values of shape [rows, columns]; a
// unit dimension makes a per-row vector, a per-column vector or a scalar. Nodes are hash-consed
// (equal nodes are one object), so ids are a topological order and common subexpressions are free.
// Only primitive operations exist; norms, activations, RoPE and losses are builders that expand
// into primitives (coda/builders.h).
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <unordered_map>
#include <vector>

#include "coda/api.h"
#include "coda/dim.h"
#include "coda/dtype.h"
#include "coda/elementwise.h"
#include "coda/partial.h"

namespace CODA_API coda {

enum class Op : uint8_t {
  input,           // name, kind, dtype
  constant,        // [1, 1] number
  reciprocal_dim,  // [1, 1] 1 / dim
  ones,            // [1, N] of 1
  column_index,    // [1, N]: 0, 1, ..., N - 1
  elementwise,     // fn; operands broadcast along unit dimensions
  row_sum,         // [M, N] -> [M, 1]; linear: passes may move factors out of it
  col_sum,         // [M, N] -> [1, N]; of a per-row vector: -> [1, 1]
  row_reduce,      // [M, N] -> [M, 1]: another `reduction` of each row
  col_reduce,      // [M, N] -> [1, N]
  select_column,  // x [M, N], index [M, 1] -> [M, 1]: x[i, index[i]], 0 for an index outside [0, N)
  matmul,      // operands a0, b0, a1, b1, ...: the sum over segments of op(a)·op(b); see transposes
  split_pair,  // [M, N] -> [M, N/2]: member `which` of each pair, see `group`
  merge_pairs,     // the inverse of split_pair
  slice_columns,   // columns [offset, offset + cols)
  concat_columns,  // operands side by side
  repeat_columns,  // the operand `repeat` times, side by side
  gather_rows,     // table [T, N], index [M, 1] -> [M, N]
  group_sum,       // [M, N] -> [M, N/group]: sums of groups of adjacent columns
  group_repeat,    // [M, G] -> [M, G * group]: the adjoint of group_sum
  transpose,       // of a vector: [M, 1] <-> [1, M]
  opaque,          // a call of the operation `name`; `result` nodes read its results
  result,          // result `which` of an opaque call
};
inline constexpr int kOpCount = static_cast<int>(Op::result) + 1;

enum class InputKind : uint8_t {
  activation,  // changes at every run; saving it for the backward costs memory
  parameter,   // may be differentiated; always resident
  table,       // constant data (a RoPE table, positions, token ids): never differentiated, always
               // resident
};

struct Transposes {
  bool a = false;
  bool b = false;
  friend auto operator<=>(const Transposes&, const Transposes&) = default;
};

struct Operation;  // coda/operation.h

struct Node {
  Op op = Op::constant;
  Shape shape{};
  std::vector<int> operands{};
  Elementwise fn = Elementwise::add;         // elementwise
  PartialKind reduction = PartialKind::sum;  // row_reduce, col_reduce
  double number = 0;                         // constant
  Dim dim = 0;  // reciprocal_dim: the size; slice: offset; pairs and groups: columns per group
  // split_pair: member; result: index; matmul, opaque: number of an otherwise equal node that must
  // stay a separate node (a recomputed layer)
  int which = 0;
  Dim repeat = 1;                        // repeat_columns
  std::vector<Transposes> transposes{};  // matmul: one a segment
  std::string name{};                    // input, opaque
  InputKind kind = InputKind::activation;
  DType dtype = DType::f32;  // input: the storage type
  // Of an opaque call: the operation, attributes that differ from their defaults, sizes, the shapes
  // of the results, and which results are fp32 for any storage type.
  const Operation* operation = nullptr;
  std::map<std::string, double> attributes{};
  std::map<std::string, Dim> sizes{};
  std::vector<Shape> results{};
  std::vector<bool> result_is_fp32{};
};

class Graph;

// A pointer to a Graph that stays valid when the Graph is moved.
class GraphPointer {
 public:
  GraphPointer() = default;
  GraphPointer(std::nullptr_t) {}    // NOLINT: as a plain pointer
  GraphPointer(const Graph* graph);  // NOLINT: as a plain pointer

  Graph* get() const { return home_ == nullptr ? nullptr : *home_; }
  Graph& operator*() const { return **home_; }
  Graph* operator->() const { return *home_; }
  friend bool operator==(const GraphPointer&, const GraphPointer&) = default;

 private:
  Graph* const* home_ = nullptr;  // where the Graph writes its address when it moves
};

// A handle of a node. It stays valid when its Graph is moved. A copy of a Graph has its own values
// with the same ids (Graph::value).
struct Value {
  GraphPointer graph;
  int id = -1;
  const Shape& shape() const;
  friend bool operator==(const Value&, const Value&) = default;
};

using Where = std::source_location;

// A moved-from Graph may only be assigned to or destroyed. A copy is independent.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph& other);
  Graph(Graph&& other) noexcept;
  Graph& operator=(const Graph& other) { return *this = Graph(other); }
  Graph& operator=(Graph&& other) noexcept;
  ~Graph() = default;

  Value input(const std::string& name, Shape shape, DType dtype = DType::f32,
              InputKind kind = InputKind::activation, Where where = Where::current());
  Value parameter(const std::string& name, Shape shape, DType dtype = DType::f32,
                  Where where = Where::current()) {
    return input(name, std::move(shape), dtype, InputKind::parameter, where);
  }
  Value table(const std::string& name, Shape shape, DType dtype = DType::f32,
              Where where = Where::current()) {
    return input(name, std::move(shape), dtype, InputKind::table, where);
  }
  Value constant(double number);
  Value reciprocal_dim(const Dim& dim, Where where = Where::current());
  Value ones(const Dim& cols, Where where = Where::current());
  Value column_index(const Dim& cols, Where where = Where::current());

  int size() const { return static_cast<int>(nodes_.size()); }
  const Node& node(int id) const { return nodes_[static_cast<size_t>(id)]; }
  Value value(int id) { return {this, id}; }
  // The node equal to `node`, made if there is none. Does not simplify or check.
  int intern(Node node);
  // Turns the node into an input of that name and drops its operands.
  void become_input(int id, const std::string& name);
  // The input of that name, or -1.
  int find_input(std::string_view name) const;

 private:
  friend class GraphPointer;

  std::unique_ptr<Graph*> home_ = std::make_unique<Graph*>(this);  // see GraphPointer
  std::deque<Node> nodes_;                      // a node stays where it is while the graph grows
  std::unordered_multimap<size_t, int> index_;  // hash of a node -> its id
  std::map<std::string, int, std::less<>> inputs_;
};

inline GraphPointer::GraphPointer(const Graph* graph)
    : home_(graph == nullptr ? nullptr : graph->home_.get()) {}

// An operand of an operator: a value or a number, with the caller's source line (an operator has no
// parameter for it). Error for a default-constructed Value.
struct ValueOrNumber {
  ValueOrNumber(Value value, Where where = Where::current());   // NOLINT: stands for one
  ValueOrNumber(double number, Where where = Where::current())  // NOLINT: stands for one
      : number(number), where(where) {}

  Value value;  // without a graph: the operand is the number
  double number = 0;
  Where where;
};

// Builders. Each one checks that its operands belong to one graph and have valid shapes (Error
// names the operation, the shapes and the caller's line). It then simplifies: constants fold, as do
// x + 0, x * 1, split of a merge, slice of a concatenation, r * (1 / r). Operands of commutative
// operations get a canonical order.
Value elementwise(Elementwise fn, std::vector<Value> operands, Where where = Where::current());
Value add(Value a, Value b, Where where = Where::current());
Value sub(Value a, Value b, Where where = Where::current());
Value mul(Value a, Value b, Where where = Where::current());
Value div(Value a, Value b, Where where = Where::current());
Value neg(Value a, Where where = Where::current());
// `a` where the condition is not 0, else `b`.
Value select(Value condition, const ValueOrNumber& a, const ValueOrNumber& b,
             Where where = Where::current());
Value maximum(const ValueOrNumber& a, const ValueOrNumber& b, Where where = Where::current());
Value minimum(const ValueOrNumber& a, const ValueOrNumber& b, Where where = Where::current());
Value equal(const ValueOrNumber& a, const ValueOrNumber& b,
            Where where = Where::current());  // 1 or 0
Value less(const ValueOrNumber& a, const ValueOrNumber& b,
           Where where = Where::current());  // a < b: 1 or 0
Value exp(Value x, Where where = Where::current());
Value log(Value x, Where where = Where::current());
Value rsqrt(Value x, Where where = Where::current());
Value sqrt(Value x, Where where = Where::current());
Value recip(Value x, Where where = Where::current());
Value sigmoid(Value x, Where where = Where::current());
Value tanh(Value x, Where where = Where::current());
Value erf(Value x, Where where = Where::current());
Value silu(Value x, Where where = Where::current());
Value gelu(Value x, Where where = Where::current());       // exact, by erf
Value gelu_tanh(Value x, Where where = Where::current());  // GPT-2's

Value row_sum(Value x, Where where = Where::current());
Value col_sum(Value x, Where where = Where::current());
Value row_mean(Value x, Where where = Where::current());
// Any reduction of coda/partial.h. Elements that share the maximum share its gradient evenly.
Value row_reduce(Value x, PartialKind kind, Where where = Where::current());
Value col_reduce(Value x, PartialKind kind, Where where = Where::current());
Value row_logsumexp(Value x, Where where = Where::current());
// The entropy of softmax(x), in one pass over x. NaN if the largest value of a row is infinite.
Value row_entropy(Value x, Where where = Where::current());
Value row_m2(Value x, Where where = Where::current());  // sum of (x - mean of the row)²
// The index of select_column and gather_rows is [M, 1]; i32 is fastest.
Value select_column(Value x, Value index, Where where = Where::current());
Value group_sum(Value x, const Dim& group, Where where = Where::current());
Value group_repeat(Value x, const Dim& group, Where where = Where::current());

struct MatmulOperands {
  Value a;
  Value b;
  Transposes transposes;
};
// The sum over segments of op(a)·op(b).
Value matmul(const std::vector<MatmulOperands>& segments, Where where = Where::current());
// x[M, K] · w[N, K]^T, as torch.nn.Linear. conv1d: x[M, K] · w[K, N], as GPT-2 stores its weights.
Value linear(Value x, Value w, Where where = Where::current());
Value conv1d(Value x, Value w, Where where = Where::current());

Value split_pair(Value x, const Dim& group, int which, Where where = Where::current());
Value merge_pairs(Value first, Value second, const Dim& group, Where where = Where::current());
Value slice_columns(Value x, const Dim& offset, const Dim& cols, Where where = Where::current());
Value concat_columns(const std::vector<Value>& parts, Where where = Where::current());
Value repeat_columns(Value x, const Dim& repeat, Where where = Where::current());
Value gather_rows(Value table, Value index, Where where = Where::current());
Value transpose(Value vector, Where where = Where::current());

// Operators also take numbers: x / 30.0, 1.0 - x. Error if neither operand is a value.
Value operator+(const ValueOrNumber& a, const ValueOrNumber& b);
Value operator-(const ValueOrNumber& a, const ValueOrNumber& b);
Value operator*(const ValueOrNumber& a, const ValueOrNumber& b);
Value operator/(const ValueOrNumber& a, const ValueOrNumber& b);
Value operator-(const ValueOrNumber& a);

// Whether every element is provably positive: rsqrt, positive constants, and products and
// reciprocals of positive values. (exp and sigmoid do not count: they reach 0 in fp32, so dividing
// by them is not safe.)
bool is_positive(const Graph& graph, int id);

}  // namespace CODA_API coda
