// SPDX-License-Identifier: Apache-2.0
// Three passes: an order, depth first from what has an effect; which operand of each is in the
// accumulator, and so which values others must find in a slot; the instructions.
#include "cpu/chain.h"

#include <algorithm>

namespace coda::cpu {
namespace {

// Columns of the whole space that the operation's planes have.
int64_t all_columns(const TileOp& op, int64_t cols) { return op.is_narrow ? op.groups : cols; }

bool are_neighbours(const TileOp& op, int64_t cols) {
  const int64_t all = all_columns(op, cols);
  return op.map.run(0, op.plane, all) == all;
}

bool is_partial(const TileOp& op) {
  return op.kind == TileOpKind::row_partial || op.kind == TileOpKind::column_partial;
}

class Compiler {
 public:
  Compiler(const std::vector<TileOp>& ops, int64_t cols, const ChainMachine& machine)
      : ops_(ops),
        cols_(cols),
        machine_(machine),
        lanes_(machine.columns / kChunkVectors),
        is_visited_(ops.size(), 0) {
    for (size_t k = 0; k < ops.size(); ++k) {
      if (ops[k].out[0].kind != PlaceKind::none) values_.push_back({ops[k].out[0], k});
    }
    for (const TileOp& op : ops) {
      for (const Place& p : op.in) {
        if (Value* v = value_at(p)) ++v->uses;
      }
    }
  }

  Chain run() {
    for (size_t k = 0; k < ops_.size(); ++k) {
      const bool has_effect = writes_memory(ops_[k]) || ops_[k].out[0].kind == PlaceKind::strip;
      if (has_effect) visit(k);
    }
    pick_operands();
    emit();
    return std::move(chain_);
  }

 private:
  // What an operation of the chain makes.
  struct Value {
    Place place;
    size_t maker = 0;
    int uses = 0;
    int last_read = -1;  // from its slot: index in the order
    int slot = -1;
  };
  struct Ordered {
    size_t op = 0;
    int which = 0;  // operand is in the accumulator
    bool is_fetched = false;
  };

  Value* value_at(const Place& place) {
    if (place.kind != PlaceKind::value && place.kind != PlaceKind::strip) return nullptr;
    const auto found = std::find_if(values_.begin(), values_.end(),
                                    [&](const Value& v) { return v.place == place; });
    return found == values_.end() ? nullptr : &*found;
  }

  void visit(size_t k) {
    if (is_visited_[k]) return;
    is_visited_[k] = 1;
    if (writes_memory(ops_[k])) {
      for (size_t i = 0; i < k; ++i) {
        if (reads_memory(ops_[i])) visit(i);
      }
    }
    // What nothing else reads is made last: it stays in the accumulator.
    for (const bool is_shared : {true, false}) {
      for (const Place& p : ops_[k].in) {
        const Value* v = value_at(p);
        if (v != nullptr && (v->uses > 1) == is_shared) visit(v->maker);
      }
    }
    order_.push_back({k});
  }

  static int operands(const TileOp& op) {
    int n = 0;
    while (n < 3 && op.in[n].kind != PlaceKind::none) ++n;
    return n;
  }

  void pick_operands() {
    Place accumulator;
    for (size_t i = 0; i < order_.size(); ++i) {
      Ordered& s = order_[i];
      const TileOp& op = ops_[s.op];
      const int n = operands(op);
      const auto use = [&](int which, bool is_fetched) {
        s.which = which;
        s.is_fetched = is_fetched;
      };
      if (is_partial(op) && n == 2) {
        use(1, op.in[1] != accumulator);  // the first plane is added first
      } else if (n > 0) {
        int first = 0;  // a plane rather than a constant
        while (first + 1 < n && op.in[first].is_constant_along_columns()) ++first;
        use(first, true);
        for (int p = 0; p < n; ++p) {
          if (op.in[p] == accumulator) use(p, false);
        }
      }
      for (int p = 0; p < n; ++p) {
        Value* v = value_at(op.in[p]);
        if (v != nullptr && (p != s.which || s.is_fetched)) v->last_read = static_cast<int>(i);
      }
      if (s.is_fetched) accumulator = op.in[s.which];
      if (op.out[0].kind != PlaceKind::none) accumulator = op.out[0];
    }
  }

  uint16_t stream(const StreamForm& form) {
    auto& all = chain_.streams;
    const auto found = std::find(all.begin(), all.end(), form);
    if (found != all.end()) return static_cast<uint16_t>(found - all.begin());
    all.push_back(form);
    return static_cast<uint16_t>(all.size() - 1);
  }
  uint16_t slot_stream(int slot) { return stream({StreamKind::slot, {}, slot}); }
  uint16_t operand_stream(const Place& place) {
    if (place.kind == PlaceKind::value) return slot_stream(value_at(place)->slot);
    return stream({StreamKind::place, place});
  }

  void add(HandlerKey key, uint16_t a = 0, uint16_t b = 0, uint16_t c = 0) {
    chain_.whole.push_back({machine_.handler(key), a, b, c});
    key.is_ragged = true;
    if (key.columns == Columns::neighbours) {
      const bool has_twos = !ops_[0].is_narrow && cols_ % (2 * lanes_) == 0;
      key.columns = has_twos ? Columns::twos : Columns::ragged;
    }
    chain_.ragged.push_back({machine_.handler(key), a, b, c});
  }

  void fetch(const Place& place) {
    HandlerKey key{Action::fetch};
    key.is_constant[0] = place.is_constant_along_columns();
    add(key, operand_stream(place));
  }

  // Loads and stores.
  void move(const TileOp& op, Action action) {
    HandlerKey key{action};
    key.dtype = op.dtype;
    const auto come_in = [&](int64_t columns) {
      return cols_ % columns == 0 && op.map.half % columns == 0 && op.map.stored % columns == 0;
    };
    if (!are_neighbours(op, cols_)) {
      key.columns = come_in(2 * lanes_) ? Columns::twos : Columns::ragged;
    }
    StreamForm offsets{StreamKind::offsets};
    offsets.map = op.map;
    offsets.plane = op.plane;
    add(key, stream({StreamKind::memory, {}, op.tensor, op.index_tensor}), stream(offsets),
        stream({StreamKind::ahead, {}, op.tensor, op.index_tensor}));
  }

  // What has the accumulator as operand `which` and up to two more operands.
  void compute(const TileOp& op, Action action, int which) {
    HandlerKey key{action, op.op, op.arithmetic, op.dtype, which};
    uint16_t streams[2] = {0, 0};
    int count = 0;
    for (int p = 0; p < operands(op); ++p) {
      if (p == which) continue;
      key.is_constant[count] = op.in[p].is_constant_along_columns();
      streams[count++] = operand_stream(op.in[p]);
    }
    add(key, streams[0], streams[1]);
  }

  void emit_op(const Ordered& s) {
    const TileOp& op = ops_[s.op];
    if (s.is_fetched) fetch(op.in[s.which]);
    switch (op.kind) {
      case TileOpKind::load: return move(op, Action::load);
      case TileOpKind::store: return move(op, Action::store);
      case TileOpKind::sum: return compute(op, Action::sum, s.which);
      case TileOpKind::round: return compute(op, Action::round, s.which);
      case TileOpKind::row_partial: {
        const uint16_t sums = stream({StreamKind::row_partial, {}, op.tensor});
        if (operands(op) == 1) return add({Action::row_sum}, sums);
        return add({Action::row_sum_of_two}, sums, operand_stream(op.in[0]));
      }
      case TileOpKind::column_partial:
        chain_.column_sums.push_back(op);
        return add({Action::column_sum}, stream({StreamKind::state, {}, op.state}));
      default: return compute(op, Action::elementwise, s.which);
    }
  }

  void emit() {
    chain_.machine = machine_;
    chain_.is_narrow = ops_[0].is_narrow;
    chain_.span = ops_[0].span;
    chain_.groups = ops_[0].groups;
    std::vector<int> free;
    for (size_t i = 0; i < order_.size(); ++i) {
      emit_op(order_[i]);
      for (Value& v : values_) {
        if (v.slot >= 0 && v.last_read == static_cast<int>(i)) free.push_back(v.slot);
      }
      const TileOp& op = ops_[order_[i].op];
      Value* made = value_at(op.out[0]);
      if (made == nullptr) continue;
      if (made->place.kind == PlaceKind::strip) {
        const uint16_t plane = operand_stream(made->place);
        add({Action::store}, plane, stream({StreamKind::neighbours}), plane);
      } else if (made->last_read >= 0) {
        if (free.empty()) free.push_back(chain_.slots++);
        made->slot = free.back();
        free.pop_back();
        add({Action::keep}, slot_stream(made->slot));
      }
    }
    add({Action::end});
  }

  const std::vector<TileOp>& ops_;
  const int64_t cols_;
  const ChainMachine& machine_;
  const int64_t lanes_;
  std::vector<char> is_visited_;
  std::vector<Value> values_;
  std::vector<Ordered> order_;
  Chain chain_;
};

}  // namespace

bool reads_memory(const TileOp& op) {
  return op.kind == TileOpKind::load || op.kind == TileOpKind::load_pairs ||
         op.kind == TileOpKind::abs_max_into;
}

bool writes_memory(const TileOp& op) {
  return op.kind == TileOpKind::store || op.kind == TileOpKind::store_pairs || is_partial(op) ||
         op.kind == TileOpKind::select_column || op.kind == TileOpKind::store_transposed ||
         op.kind == TileOpKind::abs_max_into;
}

bool fits_chain(const TileOp& op, int64_t cols, const ChainMachine& machine) {
  switch (op.kind) {
    case TileOpKind::elementwise:
    case TileOpKind::sum:
    case TileOpKind::round: return true;
    case TileOpKind::load:
    case TileOpKind::store: {
      // Whole vectors lie together.
      const int64_t lanes = machine.columns / kChunkVectors;
      return are_neighbours(op, cols) ||
             (!op.is_narrow && op.map.half % lanes == 0 && op.map.stored % lanes == 0);
    }
    case TileOpKind::row_partial: return op.partial == PartialKind::sum && machine.has_row_sums();
    case TileOpKind::column_partial: return op.partial == PartialKind::sum;
    default: return false;
  }
}

Chain compile_chain(const std::vector<TileOp>& ops, int64_t cols, const ChainMachine& machine) {
  return Compiler(ops, cols, machine).run();
}

}  // namespace coda::cpu
