// SPDX-License-Identifier: Apache-2.0
// The rules of a well-formed program: each step on its own (what it names exists, shapes and types
// agree, no field is set that its kind does not use), then all of them together (tile spaces,
// names, stores). A backend trusts all of this.
#include <cmath>
#include <set>

#include "base/columns.h"
#include "coda/error.h"
#include "program/problem.h"
#include "program/tile_map.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

std::string v(int step) { return "v" + std::to_string(step); }

class Verifier {
 public:
  explicit Verifier(const Program& program)
      : program_(program), count_(static_cast<int>(program.steps.size())) {}

  void run() {
    check_tensors();
    check(count_ > 0, -1, [] { return std::string("it has no steps"); });
    for (int i = 0; i < count_; ++i) check_step(i);
    check_uses();
    map_ = map_tiles(program_);
    check_kinds_of_steps();
    check_row_partials();
    check_stores();
  }

 private:
  const Step& step(int i) const { return program_.steps[i]; }
  const TensorDecl& tensor(int i) const { return program_.tensors[i]; }

  void check_size(const Dim& dim, int at, const std::string& what) {
    check(!dim.is_constant() || dim.constant() > 0, at,
          [&] { return what + " has size " + dim.text() + "; sizes are positive"; });
  }

  void check_tensors() {
    check(is_name(program_.name), -1,
          [] { return std::string("its name is empty or has characters that text cannot hold"); });
    std::set<std::string_view> names;
    for (const TensorDecl& t : program_.tensors) {
      check(is_name(t.name), -1, [&] {
        return "tensor name '" + t.name + "' is empty or has characters that text cannot hold";
      });
      check(names.insert(t.name).second, -1,
            [&] { return "tensor '" + t.name + "' is declared twice"; });
      check_size(t.shape.rows, -1, "tensor '" + t.name + "'");
      check_size(t.shape.cols, -1, "tensor '" + t.name + "'");
      if (t.kind == TensorKind::dense) {
        check(t.lanes == 1, -1,
              [&] { return "dense tensor '" + t.name + "' has more than one lane"; });
      } else {
        check(t.dtype == DType::f32, -1, [&] { return "partial '" + t.name + "' must be f32"; });
        check(t.lanes == 1 || t.lanes == 2, -1,
              [&] { return "partial '" + t.name + "' has " + std::to_string(t.lanes) + " lanes"; });
      }
    }
  }

  void check_step(int i) {
    const Step& s = step(i);
    check_size(s.shape.rows, i, "its value");
    check_size(s.shape.cols, i, "its value");
    for (int operand : s.operands) {
      check(operand >= 0 && operand < i, i,
            [&] { return "operand " + v(operand) + " is used before it is made"; });
      check(!is_effect(step(operand).kind), i,
            [&] { return "operand " + v(operand) + " is an effect and has no value"; });
      check(step(operand).kind != StepKind::select_column || s.kind == StepKind::store_vector, i,
            [&] {
              return "operand " + v(operand) + " is a selected column, which can only be stored";
            });
    }
    const int operands = info(s.kind).operands;
    if (operands != kOperandsOfOp) operand_count(i, static_cast<size_t>(operands));
    switch (s.kind) {
      case StepKind::gemm: check_gemm(i); break;
      case StepKind::load_tile: check_load_tile(i); break;
      case StepKind::load_per_row:
      case StepKind::load_per_column:
      case StepKind::load_scalar: check_load_vector(i); break;
      case StepKind::constant:
        check(s.shape.is_scalar(), i, [] { return std::string("a constant has shape [1, 1]"); });
        check(!std::isnan(s.number), i, [] { return std::string("a constant is not NaN"); });
        break;
      case StepKind::column_index:
        check(s.shape.is_per_column(), i,
              [&] { return "a column index has shape [1, N], not " + s.shape.text(); });
        break;
      case StepKind::elementwise: check_elementwise(i); break;
      case StepKind::split_pair:
      case StepKind::merge_pairs: check_pairs(i); break;
      case StepKind::as_stored:
        same_shape(i);
        check(s.dtype != DType::i32, i, [] { return std::string("values are not stored as i32"); });
        break;
      case StepKind::reduce_group:
      case StepKind::repeat_group: check_groups(i); break;
      case StepKind::select_column: check_select_column(i); break;
      case StepKind::combine: check_combine(i); break;
      case StepKind::reduce_vector:
      case StepKind::transpose_vector: check_vector_change(i); break;
      case StepKind::store_tile:
      case StepKind::store_vector: check_store(i); break;
      case StepKind::row_partial:
      case StepKind::column_partial: check_partial(i); break;
      default: fail(i, "unknown kind of step " + std::to_string(static_cast<int>(s.kind)));
    }
    check(with_own_fields(s) == s, i, [&] {
      return "a field is set that a " + std::string(name_of(s.kind)) +
             " does not use; leave it at its default";
    });
  }

  void operand_count(int i, size_t count) {
    check(step(i).operands.size() == count, i, [&] {
      return "it takes " + std::to_string(count) + " operands and has " +
             std::to_string(step(i).operands.size());
    });
  }

  void same_shape(int i) {
    const Shape& operand = step(step(i).operands[0]).shape;
    check(step(i).shape == operand, i, [&] {
      return "its shape " + step(i).shape.text() + " is not its operand's, " + operand.text();
    });
  }

  const TensorDecl& dense(int i, int index) {
    check(index >= 0 && index < static_cast<int>(program_.tensors.size()), i,
          [&] { return "tensor index " + std::to_string(index) + " is out of range"; });
    check(tensor(index).kind == TensorKind::dense, i, [&] {
      return "tensor '" + tensor(index).name + "' holds partials; only combine reads them";
    });
    return tensor(index);
  }

  void check_tile_shape(int i) {
    check(step(i).shape.is_tensor(), i, [&] {
      return "a tile of shape " + step(i).shape.text() +
             " is a vector; load it as one, or write a symbol that is 1 when the program runs";
    });
  }

  void check_gemm(int i) {
    const Step& s = step(i);
    check(!s.segments.empty(), i, [] { return std::string("a gemm has at least one segment"); });
    check_tile_shape(i);
    for (const GemmSegment& segment : s.segments) {
      const TensorDecl& a = dense(i, segment.a);
      const TensorDecl& b = dense(i, segment.b);
      for (const TensorDecl* t : {&a, &b}) {
        check(t->dtype != DType::i32, i, [&] { return "gemm operand '" + t->name + "' is i32"; });
      }
      const Dim& m = segment.transpose_a ? a.shape.cols : a.shape.rows;
      const Dim& ka = segment.transpose_a ? a.shape.rows : a.shape.cols;
      const Dim& kb = segment.transpose_b ? b.shape.cols : b.shape.rows;
      const Dim& n = segment.transpose_b ? b.shape.rows : b.shape.cols;
      const auto operands = [&] {
        return "'" + a.name + "' " + a.shape.text() + (segment.transpose_a ? " transposed" : "") +
               " and '" + b.name + "' " + b.shape.text() +
               (segment.transpose_b ? " transposed" : "");
      };
      check(ka == kb, i, [&] {
        return operands() + " do not agree along the contraction: " + ka.text() + " and " +
               kb.text();
      });
      check(m == s.shape.rows && n == s.shape.cols, i, [&] {
        return operands() + " give [" + m.text() + ", " + n.text() + "], not " + s.shape.text();
      });
    }
  }

  void check_load_tile(int i) {
    const Step& s = step(i);
    check_tile_shape(i);
    const TensorDecl& t = dense(i, s.tensor);
    Dim rows = t.shape.rows;
    if (s.row_index != -1) {
      const TensorDecl& index = dense(i, s.row_index);
      check(index.dtype == DType::i32 && index.shape.cols.is(1), i, [&] {
        return "row index '" + index.name + "' must be i32 of shape [M, 1], it is " +
               std::string(coda::name_of(index.dtype)) + " of shape " + index.shape.text();
      });
      rows = index.shape.rows;
    }
    constexpr int64_t kMostRepeats = 1024;  // as repeat_columns has it, which a tile lifts to
    check(s.repeat >= 1 && s.repeat <= kMostRepeats, i, [&] {
      return "columns repeated " + std::to_string(s.repeat) + " times, where 1 to " +
             std::to_string(kMostRepeats) + " are supported";
    });
    const Shape shape{rows, s.repeat * t.shape.cols};
    check(s.shape == shape, i, [&] {
      return "the tile of '" + t.name + "' has shape " + shape.text() + ", not " + s.shape.text();
    });
  }

  void check_load_vector(int i) {
    const Step& s = step(i);
    const TensorDecl& t = dense(i, s.tensor);
    check(s.shape == t.shape, i, [&] {
      return "its shape " + s.shape.text() + " is not that of '" + t.name + "', " + t.shape.text();
    });
    const char* need = s.kind == StepKind::load_per_row      ? "[M, 1]"
                       : s.kind == StepKind::load_per_column ? "[1, N]"
                                                             : "[1, 1]";
    check(t.shape.is_vector() && s.kind == load_kind(t.shape), i, [&] {
      return "'" + t.name + "' has shape " + t.shape.text() + "; " + std::string(name_of(s.kind)) +
             " needs " + need;
    });
  }

  void check_elementwise(int i) {
    const Step& s = step(i);
    check(static_cast<int>(s.op) < kElementwiseCount, i,
          [] { return std::string("unknown operation"); });
    operand_count(i, info(s.op).arity);
    Shape shape;
    for (int operand : s.operands) {
      const Shape& theirs = step(operand).shape;
      for (auto dim : {&Shape::rows, &Shape::cols}) {
        if ((theirs.*dim).is(1)) continue;
        check((shape.*dim).is(1) || shape.*dim == theirs.*dim, i, [&] {
          std::string list;
          for (int o : s.operands) list += (list.empty() ? "" : " and ") + step(o).shape.text();
          return "shapes " + list + " do not broadcast";
        });
        shape.*dim = theirs.*dim;
      }
    }
    check(s.shape == shape, i,
          [&] { return "its operands broadcast to " + shape.text() + ", not " + s.shape.text(); });
  }

  void check_pairs(int i) {
    const Step& s = step(i);
    const bool split = s.kind == StepKind::split_pair;
    const Shape& first = step(s.operands[0]).shape;
    const Shape& wide = split ? first : s.shape;
    check(!(s.group == Dim(0)) && s.group.half() && quotient(wide.cols, s.group), i, [&] {
      return "pairs within groups of " + s.group.text() + " columns do not divide " +
             wide.cols.text() +
             " columns for all sizes; the group must be even and divide the width (write the width "
             "as "
             "a multiple, such as 2*I)";
    });
    const Shape half{wide.rows, *wide.cols.half()};
    if (split) {
      check(s.shape == half, i, [&] {
        return "a member of its pairs has shape " + half.text() + ", not " + s.shape.text();
      });
      check(s.which == 0 || s.which == 1, i,
            [&] { return "a pair has members 0 and 1, not " + std::to_string(s.which); });
    } else {
      for (int operand : s.operands) {
        check(step(operand).shape == half, i, [&] {
          return "members " + first.text() + " and " + step(s.operands[1]).shape.text() +
                 " do not merge to " + s.shape.text();
        });
      }
    }
  }

  void check_groups(int i) {
    const Step& s = step(i);
    const bool reduce = s.kind == StepKind::reduce_group;
    const Shape& wide = reduce ? step(s.operands[0]).shape : s.shape;
    const Shape& narrow = reduce ? s.shape : step(s.operands[0]).shape;
    const std::optional<Dim> groups =
        s.group == Dim(0) ? std::nullopt : quotient(wide.cols, s.group);
    check(groups.has_value(), i, [&] {
      return "groups of " + s.group.text() + " columns do not divide " + wide.cols.text() +
             " columns for all sizes; write the width as a multiple of the group";
    });
    const Shape expected{wide.rows, *groups};
    check(narrow == expected, i, [&] {
      return wide.text() + " has groups of shape " + expected.text() + ", not " + narrow.text();
    });
  }

  void check_select_column(int i) {
    const Step& s = step(i);
    const Step& index = step(s.operands[1]);
    check(index.kind == StepKind::load_per_row && tensor(index.tensor).dtype == DType::i32, i, [&] {
      return "the column to select, " + v(s.operands[1]) +
             ", must be a per-row load of an i32 tensor";
    });
    const Shape shape{step(s.operands[0]).shape.rows, 1};
    check(s.shape == shape && index.shape == shape, i, [&] {
      return "selecting from " + step(s.operands[0]).shape.text() + " by an index of shape " +
             index.shape.text() + " gives " + shape.text() + ", not " + s.shape.text();
    });
  }

  void check_combine(int i) {
    const Step& s = step(i);
    check(s.tensor >= 0 && s.tensor < static_cast<int>(program_.tensors.size()), i,
          [] { return std::string("its tensor index is out of range"); });
    const TensorDecl& t = tensor(s.tensor);
    check_partial_tensor(i, t, t.kind == TensorKind::dense ? TensorKind::row_partial : t.kind);
    const bool rows = t.kind == TensorKind::row_partial;
    const Shape shape = rows ? Shape{t.shape.rows, 1} : Shape{1, t.shape.cols};
    check(s.shape == shape, i, [&] {
      return "combining '" + t.name + "' gives " + shape.text() + ", not " + s.shape.text();
    });
    check(s.lane >= 0 && s.lane < info(s.partial).lanes, i, [&] {
      return "a " + std::string(info(s.partial).name) + " partial has no result " +
             std::to_string(s.lane);
    });
  }

  void check_partial_tensor(int i, const TensorDecl& t, TensorKind kind) {
    check(t.kind == kind, i, [&] {
      return "tensor '" + t.name + "' is not declared as a " +
             (kind == TensorKind::row_partial ? "row" : "column") + " partial";
    });
    check(t.lanes == info(step(i).partial).lanes, i, [&] {
      return "a " + std::string(info(step(i).partial).name) + " partial has " +
             std::to_string(info(step(i).partial).lanes) + " lanes, '" + t.name + "' has " +
             std::to_string(t.lanes);
    });
  }

  void check_vector_change(int i) {
    const Step& s = step(i);
    const Shape& operand = step(s.operands[0]).shape;
    check(operand.is_per_row() || operand.is_per_column(), i,
          [&] { return "its operand has shape " + operand.text() + ", which is no vector"; });
    const Shape shape =
        s.kind == StepKind::reduce_vector ? Shape{} : Shape{operand.cols, operand.rows};
    check(s.shape == shape, i,
          [&] { return "its value has shape " + shape.text() + ", not " + s.shape.text(); });
  }

  void check_store(int i) {
    const Step& s = step(i);
    same_shape(i);
    const TensorDecl& t = dense(i, s.tensor);
    check(t.shape == s.shape, i, [&] {
      return "'" + t.name + "' has shape " + t.shape.text() + " and the value " + s.shape.text();
    });
    check(t.dtype != DType::i32, i,
          [&] { return "'" + t.name + "' is i32; values are stored as floats"; });
  }

  void check_partial(int i) {
    const Step& s = step(i);
    same_shape(i);
    check(s.tensor >= 0 && s.tensor < static_cast<int>(program_.tensors.size()), i,
          [] { return std::string("its tensor index is out of range"); });
    const TensorDecl& t = tensor(s.tensor);
    const bool rows = s.kind == StepKind::row_partial;
    check_partial_tensor(i, t, rows ? TensorKind::row_partial : TensorKind::column_partial);
    // The columns of a row partial are base columns: checked when the tile spaces are known.
    check(t.shape.rows == s.shape.rows && (rows || t.shape.cols == s.shape.cols), i, [&] {
      return "partial '" + t.name + "' is declared for " + t.shape.text() + " and the value has " +
             s.shape.text();
    });
  }

  void check_uses() {
    std::vector<char> used(count_, 0);
    std::vector<char> named(program_.tensors.size(), 0);
    for (const Step& s : program_.steps) {
      for (int operand : s.operands) used[operand] = 1;
      if (s.tensor >= 0) named[s.tensor] = 1;
      if (s.row_index >= 0) named[s.row_index] = 1;
      for (const GemmSegment& segment : s.segments) named[segment.a] = named[segment.b] = 1;
    }
    for (int i = 0; i < count_; ++i) {
      check(used[i] || is_effect(step(i).kind), i,
            [] { return std::string("its value is never used; store it or remove the step"); });
    }
    for (size_t t = 0; t < named.size(); ++t) {
      check(named[t], -1,
            [&] { return "no step names tensor '" + program_.tensors[t].name + "'"; });
    }
  }

  void check_kinds_of_steps() {
    bool has_tiles = false;
    for (int i = 0; i < count_; ++i) has_tiles = has_tiles || map_.on_tile[i];
    for (int i = 0; i < count_; ++i) {
      const StepKind kind = step(i).kind;
      if (info(kind).group == StepGroup::finalizer) {
        check(!has_tiles, i, [&] {
          return "a " + std::string(name_of(kind)) +
                 " belongs to a finalizer, this program has tiles; make two programs";
        });
      }
      if (!is_effect(kind)) {
        check(kind != StepKind::select_column || map_.on_tile[step(i).operands[0]], i,
              [] { return std::string("columns are selected from a tile, not from a vector"); });
        continue;
      }
      const int operand = step(i).operands[0];
      const bool stores_vector =
          !map_.on_tile[operand] || step(operand).kind == StepKind::select_column;
      if (kind == StepKind::store_vector) {
        check(stores_vector, i, [] { return std::string("a tile is stored by store_tile"); });
        check(map_.on_tile[operand] || !has_tiles, i, [] {
          return std::string(
              "a vector that comes from no tile is stored by a program of its own, a finalizer");
        });
      } else {
        check(!stores_vector, i, [&] {
          return std::string(name_of(kind)) + " needs a tile, its operand is a vector";
        });
      }
    }
  }

  void check_row_partials() {
    for (int i = 0; i < count_; ++i) {
      const Step& s = step(i);
      if (s.kind != StepKind::row_partial) continue;
      const Dim& base = map_.spaces[map_.space[i]].shape.cols;
      const TensorDecl& t = tensor(s.tensor);
      check(t.shape.cols == base, i, [&] {
        return "row partial '" + t.name + "' is declared for " + t.shape.cols.text() +
               " columns, its tile space has " + base.text() + " base columns";
      });
      check(!info(s.partial).needs_count || s.shape.cols == base, i, [&] {
        return "a " + std::string(info(s.partial).name) +
               " row partial needs a value of the base width (how many values one covers would be "
               "unknown); reduce the members of the pairs one by one";
      });
    }
  }

  // A tensor is stored once. It may also be read, in place: by tile (or vector) loads whose value
  // is used only in the tile space of the store, at the same place of the tile, and that come
  // before the store.
  void check_stores() {
    std::vector<int> stored(program_.tensors.size(), -1);
    for (int i = 0; i < count_; ++i) {
      if (!is_effect(step(i).kind)) continue;
      int& by = stored[step(i).tensor];
      check(by < 0, i, [&] {
        return "tensor '" + tensor(step(i).tensor).name + "' is stored twice, also by step " +
               std::to_string(by);
      });
      by = i;
    }
    for (int i = 0; i < count_; ++i) {
      const Step& s = step(i);
      const auto refuse_stored = [&](int t) {
        check(t < 0 || stored[t] < 0, i, [&] {
          return "tensor '" + tensor(t).name + "' is stored by step " + std::to_string(stored[t]) +
                 " and cannot be read as a whole";
        });
      };
      for (const GemmSegment& segment : s.segments)
        refuse_stored(segment.a), refuse_stored(segment.b);
      refuse_stored(s.row_index);
      if (is_effect(s.kind) || s.tensor < 0 || stored[s.tensor] < 0) continue;
      const int store = stored[s.tensor];
      const Step& by = step(store);
      bool in_place = i < store && by.shape == s.shape && s.repeat == 1 && s.row_index < 0 &&
                      (map_.on_tile[i] ? by.kind == StepKind::store_tile &&
                                             map_.space[i] == map_.space[store] &&
                                             map_.pairing[i] == map_.pairing[store] &&
                                             map_.grouped[i] == map_.grouped[store]
                                       : by.kind == StepKind::store_vector && !map_.on_tile[store]);
      for (int j = 0; j < count_ && in_place && !map_.on_tile[i]; ++j) {
        for (int operand : step(j).operands) {
          if (operand == i) in_place = map_.space[j] == map_.space[store];
        }
      }
      check(in_place, i, [&] {
        return "tensor '" + tensor(s.tensor).name + "' is stored by step " + std::to_string(store) +
               "; it may only be read before, at the same place of the same tile";
      });
    }
  }

  const Program& program_;
  const int count_;
  TileMap map_;
};

}  // namespace

std::optional<Problem> find_problem(const Program& program) {
  try {
    Verifier(program).run();
    return std::nullopt;
  } catch (Problem& problem) {
    return std::move(problem);
  }
}

}  // namespace coda::program

namespace coda {

void verify(const Program& program) {
  const auto problem = program::find_problem(program);
  if (!problem) return;
  const std::string where = problem->step < 0
                                ? ""
                                : "step " + std::to_string(problem->step) + ", " +
                                      program::describe_step(program, problem->step) + ": ";
  throw Error("program '" + program.name + "': " + where + problem->message);
}

}  // namespace coda
