// SPDX-License-Identifier: Apache-2.0
// Rebuilds the joint graph node by node. Each value has up to two forms: as it is, and as a tile
// can load it.
#include "plan/partition/materialise.h"

#include <algorithm>

#include "coda/error.h"
#include "ir/calls.h"
#include "ir/rebuild.h"
#include "plan/partition/partition.h"

namespace coda {
namespace {

bool is_view(Op op) {
  return op == Op::slice_columns || op == Op::repeat_columns || op == Op::gather_rows;
}

class MemoryPass {
 public:
  MemoryPass(const JointGraph& joint, const std::set<int>& apart, const std::set<size_t>& wide)
      : from_(joint), source_(*joint.graph), apart_(apart), wide_(wide) {
    out_.joint.graph = std::make_unique<Graph>();
    value_.assign(static_cast<size_t>(source_.size()), -1);
    tile_ = value_;
  }

  Materialised run() {
    std::vector<int> roots = from_.outputs;
    for (int id : from_.gradients) {
      if (id >= 0) roots.push_back(id);
    }
    const std::vector<bool> live = reached_from(source_, roots);
    uses_.assign(live.size(), 0);
    for (int id : roots) ++uses_[static_cast<size_t>(id)];
    for (int id = 0; id < source_.size(); ++id) {
      if (!live[static_cast<size_t>(id)]) continue;
      for (int operand : source_.node(id).operands) ++uses_[static_cast<size_t>(operand)];
      if (source_.node(id).op == Op::matmul)
        for (int operand : source_.node(id).operands) find_multiplied(operand);
    }
    for (int id = 0; id < source_.size(); ++id) {
      if (!live[static_cast<size_t>(id)] && !is_result_of_live(id, live)) continue;
      is_forward_ = from_.forward[static_cast<size_t>(id)];
      const Value v = make(source_.node(id));
      value_[static_cast<size_t>(id)] = v.id;
      note(v, id);
    }
    for (int id : from_.row_blocks.early) {
      if (is_made(id) && !from_.row_blocks.may_be_gradient(id))
        owned_.insert(value_[static_cast<size_t>(id)]);
    }
    JointGraph& to = out_.joint;
    for (int id : from_.outputs) {
      to.outputs.push_back(root(id, true));
      if (from_.seeded.contains(id)) to.seeded.insert(to.outputs.back());
    }
    for (size_t i = 0; i < from_.gradients.size(); ++i) {
      const int id = from_.gradients[i];
      const bool is_copy = wide_.contains(i) && multiplied_.contains(id);
      to.gradients.push_back(id < 0 ? -1 : root(id, false, is_copy));
    }
    map_rest();
    return std::move(out_);
  }

 private:
  Graph& graph() { return *out_.joint.graph; }
  const Node& node(Value v) { return graph().node(v.id); }
  bool is_made(int id) const { return value_[static_cast<size_t>(id)] >= 0; }
  Value value(int id) { return graph().value(value_[static_cast<size_t>(id)]); }

  // Adds the operand of a GEMM, and the values that it is a view of.
  void find_multiplied(int id) {
    const Node& n = source_.node(id);
    if (!multiplied_.insert(id).second) return;
    if (is_view(n.op) || n.op == Op::concat_columns || n.op == Op::transpose)
      for (int operand : n.operands) find_multiplied(operand);
  }

  // A call writes all of its results, even unused ones.
  bool is_result_of_live(int id, const std::vector<bool>& live) const {
    const Node& n = source_.node(id);
    return n.op == Op::result && live[static_cast<size_t>(n.operands[0])];
  }

  void note(Value v, int id) {
    out_.origin.resize(static_cast<size_t>(graph().size()), -1);
    int& origin = out_.origin[static_cast<size_t>(v.id)];
    if (origin < 0) origin = id;
  }

  Value intern(Node node) { return graph().value(graph().intern(std::move(node))); }
  Value call(Elementwise fn, Shape shape, std::vector<int> operands) {
    Node n{.op = Op::elementwise,
           .shape = std::move(shape),
           .operands = std::move(operands),
           .fn = fn};
    return intern(std::move(n));
  }
  // x + 0 as a separate node, which builders would simplify away.
  Value copy(Value v) { return call(Elementwise::add, v.shape(), {v.id, graph().constant(0).id}); }

  // ---- memory ----

  // Whether the views between a source and its memory include an `op` (gathered or repeated rows).
  bool has(Value v, Op op) {
    for (int id = v.id; is_view(graph().node(id).op); id = graph().node(id).operands[0]) {
      if (graph().node(id).op == op) return true;
    }
    return false;
  }
  bool is_plain(Value v) {
    return is_source(graph(), v.id) && !has(v, Op::repeat_columns) && !has(v, Op::gather_rows);
  }
  bool is_integer(Value v) {
    const Node& base = graph().node(source_base(graph(), v.id));
    return base.op == Op::input && base.dtype == DType::i32;
  }
  // Whether a program stores the value as it is: not a leaf, not in memory already, and not a pair
  // of numbers.
  bool is_written(Value v) {
    const Node& n = node(v);
    if (n.operands.empty() || is_pair(n)) return false;
    return !is_source(graph(), n.op == Op::transpose ? n.operands[0] : v.id);
  }
  // Whether it is directly the result of a call, which can write it anywhere.
  bool is_result(Value v) { return node(v).op == Op::result && stored_value(graph(), v.id) < 0; }

  // The value read back from memory.
  Value stored(Value v) {
    if (is_plain(v)) return v;
    const bool joined = node(v).op == Op::concat_columns;
    if (!joined && !is_written(v)) v = copy(v);
    Node n{.op = Op::opaque,
           .operands = {v.id},
           .name = std::string(kStoredCall),
           .results = {v.shape()},
           .result_is_fp32 = {false}};
    const Value handle = intern(std::move(n));
    Node result{.op = Op::result, .shape = v.shape(), .operands = {handle.id}};
    return intern(std::move(result));
  }

  // The value as a GEMM or a call reads it from memory.
  Value whole(int id, bool may_be_integer) {
    Value v = value(id);
    if (!is_source(graph(), v.id)) {
      const bool in_memory = node(v).op == Op::slice_columns || node(v).op == Op::concat_columns;
      if (in_memory && v.shape().is_tensor()) return v;
      if (in_memory) return tile(id);
      return is_written(v) ? v : copy(v);
    }
    if (!is_plain(v) || (is_integer(v) && !may_be_integer)) return copy(v);
    return v;
  }

  // The value as a program or finalizer computes with it.
  Value tile(int id) {
    int& known = tile_[static_cast<size_t>(id)];
    if (known < 0) {
      Value v = value(id);
      if (node(v).op == Op::concat_columns || apart_.contains(id)) {
        v = stored(v);
      } else if (node(v).op == Op::slice_columns && !is_source(graph(), v.id)) {
        Node slice = node(v);
        slice.operands = {stored(graph().value(slice.operands[0])).id};
        v = intern(std::move(slice));
      }
      known = v.id;
      note(v, id);
    }
    return graph().value(known);
  }

  // The value as the caller gets it: a separate value, written by a program or call of the phase.
  // `is_copy`: GEMMs read another stored value.
  int root(int id, bool forward, bool is_copy = false) {
    Value v = value(id);
    const bool earlier =
        !forward && from_.forward[static_cast<size_t>(id)] && !from_.row_blocks.may_be_gradient(id);
    if (is_copy || earlier || node(v).op == Op::slice_columns) v = copy(tile(id));
    const auto is_own = [this](Value x) {
      const Node& made = node(x);
      return made.op == Op::concat_columns || is_pair(made) || is_result(x) || is_written(x);
    };
    while (!is_own(v) || !owned_.insert(v.id).second) {
      v = copy(node(v).op == Op::concat_columns ? stored(v) : v);
    }
    note(v, id);
    return v.id;
  }

  // ---- operations ----

  Value make(const Node& n) {
    switch (n.op) {
      case Op::input: return graph().input(n.name, n.shape, n.dtype, n.kind);
      case Op::slice_columns: return slice(n);
      case Op::concat_columns: return concat(n);
      case Op::repeat_columns: return repeat(n);
      case Op::gather_rows: return gather(n);
      case Op::split_pair: return split(n, tile(n.operands[0]));
      case Op::merge_pairs: return merge(n, tile(n.operands[0]), tile(n.operands[1]));
      case Op::group_sum: return sum_groups(n, tile(n.operands[0]));
      case Op::group_repeat: return repeat_groups(n, tile(n.operands[0]));
      case Op::row_reduce: return reduced_row(n, tile(n.operands[0]));
      case Op::select_column: return selected(n);
      case Op::elementwise:
        if (const int largest = own_largest(n); largest >= 0) return picked(n, largest);
        break;
      case Op::transpose: {
        // A source is read along the other dimension if its elements are adjacent.
        const Value v = tile(n.operands[0]);
        const bool lies = node(v).op == Op::input || !is_source(graph(), v.id);
        return over(n, {lies ? v : copy(v)});
      }
      default: break;
    }
    std::vector<Value> operands;
    const bool unit = n.op == Op::matmul || n.op == Op::opaque;
    for (int operand : n.operands) {
      operands.push_back(n.op == Op::result ? value(operand)
                         : unit             ? whole(operand, n.op == Op::opaque)
                                            : tile(operand));
    }
    if (adds(n)) operands.back() = spent(n.operands.back(), operands.back());
    return over(n, operands);
  }

  // An operand that a call adds to is overwritten with the sum and starts with the caller's value.
  // So it must be written by one program or call of the same phase that can add, and be used for
  // nothing else.
  Value spent(int id, Value v) {
    const bool has_views = node(v).op == Op::slice_columns || node(v).op == Op::concat_columns;
    const bool can_be = is_result(v) ? can_add(node(graph().value(node(v).operands[0])))
                                     : is_written(v) && !has_views;
    const bool earlier = from_.forward[static_cast<size_t>(id)] && !is_forward_ &&
                         !from_.row_blocks.may_be_gradient(id);
    const bool is_own = can_be && !earlier && uses_[static_cast<size_t>(id)] == 1;
    if (!is_own) v = sum_with_zero(tile(id));
    while (!owned_.insert(v.id).second) v = sum_with_zero(v);
    return v;
  }
  // A copy that is not shared: copy() has its operands in the other order.
  Value sum_with_zero(Value v) {
    return call(Elementwise::add, v.shape(), {graph().constant(0).id, v.id});
  }

  Value over(const Node& like, const std::vector<Value>& operands) {
    Node n = like;
    n.operands.clear();
    for (const Value& v : operands) n.operands.push_back(v.id);
    return intern(std::move(n));
  }

  // Units read a slice of a computed tensor directly; programs read it back (see tile).
  Value slice(const Node& n) {
    Value v = value(n.operands[0]);
    const bool computed = !is_source(graph(), v.id);
    if (computed && n.shape.is_vector()) v = stored(v);
    const bool gathered_vector = n.shape.is_vector() && has(v, Op::gather_rows);
    if (has(v, Op::repeat_columns) || gathered_vector) v = stored(v);
    return over(n, {v});
  }

  // Nested parts become adjacent parts. Each is written to its place by one program or call of the
  // phase.
  Value concat(const Node& n) {
    std::vector<Value> parts;
    for (int operand : n.operands) {
      const Value part = value(operand);
      const bool earlier = from_.forward[static_cast<size_t>(operand)] && !is_forward_;
      if (node(part).op == Op::concat_columns) {
        for (int inner : std::vector<int>(node(part).operands)) {
          const Value v = graph().value(inner);
          parts.push_back(earlier ? copy(v) : v);
        }
      } else {
        parts.push_back(earlier ? copy(tile(operand)) : tile(operand));
      }
    }
    return joined(n.shape, parts);
  }

  Value joined(const Shape& shape, const std::vector<Value>& parts) {
    Node n{.op = Op::concat_columns, .shape = shape};
    for (Value v : parts) {
      // A call that adds to an operand cannot also add to a caller's gradient.
      const bool is_own =
          is_result(v) ? !adds(node(graph().value(node(v).operands[0]))) : is_written(v);
      if (!is_own) v = copy(v);
      while (!owned_.insert(v.id).second) v = copy(v);
      n.operands.push_back(v.id);
    }
    return intern(std::move(n));
  }

  Value repeat(const Node& n) {
    const Value v = tile(n.operands[0]);
    if (v.shape().cols.is(1)) return mul(v, graph().ones(n.shape.cols));
    if (v.shape().rows.is(1) && n.repeat.is_constant()) {
      // A copy, because a call may be unable to add to a gradient that is computed from its result.
      const Value part = is_result(v) ? copy(v) : v;
      return joined(n.shape, std::vector<Value>(static_cast<size_t>(n.repeat.constant()), part));
    }
    return over(n, {is_source(graph(), v.id) ? v : stored(v)});
  }

  // Rows that no load can gather are selected by a GEMM with ones and zeros.
  Value gather(const Node& n) {
    const Value table = tile(n.operands[0]);
    const Value index = tile(n.operands[1]);
    const Dim rows = table.shape().rows;
    if (rows.is(1)) return broadcast(table, n.shape);
    const Value zero = graph().constant(0);
    if (table.shape().is_vector()) {
      const Value here = coda::equal(graph().column_index(rows), index);
      return row_sum(coda::select(here, coda::transpose(copy(table)), zero));
    }
    if (index.shape().rows.is(1)) {
      const Value here = coda::equal(coda::transpose(graph().column_index(rows)), index);
      return col_sum(coda::select(here, table, zero));
    }
    if (node(index).op != Op::input || !is_integer(index)) {
      const Value picked = coda::equal(graph().column_index(rows), index);
      const bool lies = !is_source(graph(), table.id) || (is_plain(table) && !is_integer(table));
      const Value from = lies ? table : copy(table);
      return matmul({{picked, from, {false, false}}});
    }
    const bool in_memory = is_source(graph(), table.id) && !has(table, Op::gather_rows);
    return over(n, {in_memory ? table : stored(table), index});
  }

  Value broadcast(Value v, const Shape& shape) {
    if (v.shape() == shape) return v;
    if (v.shape().rows.is(1) && !shape.rows.is(1))
      v = mul(coda::transpose(graph().ones(shape.rows)), v);
    return v;
  }

  // ---- Vectors as two rows of a tile.

  static bool is_row(Value v) { return v.shape().rows.is(1); }
  Value row_number() { return coda::transpose(graph().column_index(2)); }
  Value two_rows(Value v) { return mul(coda::transpose(graph().ones(2)), v); }
  Value first_row(Value v) {
    const Value zero = graph().constant(0);
    return col_sum(coda::select(coda::equal(row_number(), zero), v, zero));
  }
  Value column(Value v, const Value& index) {
    const Value here = coda::equal(graph().column_index(v.shape().cols), index);
    return row_sum(coda::select(here, v, graph().constant(0)));
  }
  Value widened(const Node& like, const std::vector<Value>& rows) {
    Node n = like;
    n.shape.rows = 2;
    std::vector<Value> operands;
    for (const Value& v : rows) operands.push_back(two_rows(v));
    return first_row(stored(over(n, operands)));
  }

  Value split(const Node& n, Value v) {
    if (n.shape.cols.is(1)) return column(v, graph().constant(n.which));
    return is_row(v) ? widened(n, {v}) : over(n, {v});
  }

  Value merge(const Node& n, Value a, Value b) {
    if (a.shape().cols.is(1)) {
      const Value first = coda::equal(graph().column_index(2), graph().constant(0));
      return coda::select(first, a, b);
    }
    return is_row(a) ? widened(n, {a, b}) : over(n, {a, b});
  }

  Value sum_groups(const Node& n, Value v) {
    if (n.dim.is(1)) return v;
    if (n.shape.cols.is(1)) return row_sum(v);
    return is_row(v) ? widened(n, {v}) : over(n, {v});
  }

  Value repeat_groups(const Node& n, Value v) {
    if (n.dim.is(1)) return v;
    if (v.shape().cols.is(1)) return mul(v, graph().ones(n.shape.cols));
    return is_row(v) ? widened(n, {v}) : over(n, {v});
  }

  Value reduced_row(const Node& n, Value v) {
    if (!is_row(v)) return over(n, {v});
    Node two = n;
    two.shape.rows = 2;
    return first_row(over(two, {two_rows(v)}));
  }

  // The reduction, if values (or their magnitudes) are compared with their own maximum; else -1.
  int own_largest(const Node& n) const {
    if (n.fn != Elementwise::equal) return -1;
    for (size_t i : {0U, 1U}) {
      const Node& largest = source_.node(n.operands[i]);
      const bool reduces = largest.op == Op::row_reduce || largest.op == Op::col_reduce;
      if (!reduces || !info(largest.reduction).picks) continue;
      const Node& values = source_.node(n.operands[1 - i]);
      const bool are_magnitudes = values.op == Op::elementwise && values.fn == Elementwise::abs &&
                                  values.operands == largest.operands;
      if (are_magnitudes || n.operands[1 - i] == largest.operands[0]) return n.operands[i];
    }
    return -1;
  }

  // Both sides of the comparison are computed from memory.
  Value picked(const Node& n, int largest) {
    const Node& reduction = source_.node(largest);
    const int of = reduction.operands[0];
    Value v = tile(of);
    if (!is_source(graph(), v.id)) v = stored(v);
    const bool is_row = reduction.op == Op::row_reduce;
    std::vector<Value> sides;
    for (int side : n.operands) {
      const bool is_reduced_row = side == largest && is_row;
      sides.push_back(side == of       ? v
                      : is_reduced_row ? reduced_row(reduction, v)
                                       : over(source_.node(side), {v}));
    }
    return over(n, sides);
  }

  // A program selects columns of a tile by an integer input.
  Value selected(const Node& n) {
    const Value v = tile(n.operands[0]);
    const Value index = tile(n.operands[1]);
    if (v.shape().cols.is(1)) {
      const Value zero = graph().constant(0);
      return coda::select(coda::equal(index, zero), v, zero);
    }
    const bool given = node(index).op == Op::input && is_integer(index);
    return is_row(v) || !given ? column(v, index) : over(n, {v, index});
  }

  // ---- The rest of the joint graph.

  void map_rest() {
    JointGraph& to = out_.joint;
    std::vector<int> forward = to.outputs;
    for (size_t id = 0; id < value_.size(); ++id) {
      if (value_[id] >= 0 && from_.forward[id]) forward.push_back(value_[id]);
    }
    to.forward = reached_from(graph(), forward);
    // A call of the forward runs in the forward and writes all of its results.
    for (int id = 0; id < graph().size(); ++id) {
      const Node& n = graph().node(id);
      if (n.op == Op::result && to.forward[static_cast<size_t>(n.operands[0])])
        to.forward[static_cast<size_t>(id)] = true;
    }
    const auto map = [this](const std::vector<int>& ids) {
      std::vector<int> mapped;
      for (int id : ids) {
        if (is_made(id)) mapped.push_back(value_[static_cast<size_t>(id)]);
      }
      return mapped;
    };
    to.candidates = {map(from_.candidates.column_factors), map(from_.candidates.row_factors),
                     map(from_.candidates.row_affine)};
    to.row_blocks = from_.row_blocks;
    to.row_blocks.values = map(from_.row_blocks.values);
    to.row_blocks.sums = map(from_.row_blocks.sums);
    to.row_blocks.early = map(from_.row_blocks.early);
    for (const std::vector<int>& of_layer : from_.starts) to.starts.push_back(map(of_layer));
    if (to.row_blocks.widest >= 0)
      to.row_blocks.widest = value_[static_cast<size_t>(to.row_blocks.widest)];
    out_.origin.resize(static_cast<size_t>(graph().size()), -1);
  }

  const JointGraph& from_;
  const Graph& source_;
  const std::set<int>& apart_;
  const std::set<size_t>& wide_;
  std::set<int> multiplied_;  // nodes of the source whose stored value a GEMM reads
  Materialised out_;
  bool is_forward_ = true;  // of the current node
  std::vector<int> uses_;   // by node of the source: number of readers
  std::vector<int> value_;  // by node of the source: its replacement
  std::vector<int> tile_;   // the form that programs compute with; -1: not requested yet
  std::set<int> owned_;     // parts of concatenations and roots, each written to one place
};

}  // namespace

int stored_value(const Graph& graph, int id) {
  const Node& n = graph.node(id);
  if (n.op != Op::result) return -1;
  const Node& call = graph.node(n.operands[0]);
  return call.name == kStoredCall ? call.operands[0] : -1;
}

Materialised materialise(const JointGraph& joint, const std::set<int>& apart,
                         const std::set<size_t>& wide) {
  return MemoryPass(joint, apart, wide).run();
}

}  // namespace coda
