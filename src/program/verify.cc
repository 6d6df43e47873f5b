// SPDX-License-Identifier: Apache-2.0
// The rules of a valid program: first each step on its own (the things that it names exist, the
// rules of its kind), then all together (tile spaces, names, stores). Backends rely on all of them.
#include <algorithm>
#include <set>

#include "coda/error.h"
#include "program/shape_rule.h"
#include "program/tile_map.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

std::string v(int step) { return "v" + std::to_string(step); }

class Verifier {
 public:
  explicit Verifier(const Program& program)
      : program_(program),
        count_(static_cast<int>(program.steps.size())),
        is_valid_(program.steps.size()) {}

  // All broken rules, in the order of the steps. Rules that depend on a broken one are skipped.
  std::vector<Problem> run() {
    attempt([&] {
      check(is_name(program_.name), -1, [] {
        return std::string("its name is empty or has characters that text cannot hold");
      });
    });
    for (const TensorDecl& t : program_.tensors) attempt([&] { check_tensor(t); });
    attempt([&] { check(count_ > 0, -1, [] { return std::string("it has no steps"); }); });
    for (const TensorDecl& t : program_.tensors) tensor_sizes_.push_back(sizes_.known(t.shape));
    for (int i = 0; i < count_; ++i) {
      attempt([&] { check_step(i); });
      step_sizes_.push_back(sizes_.known(step(i).shape));
    }
    if (!problems_.empty()) return std::move(problems_);
    check_uses();
    const size_t before = problems_.size();
    attempt([&] { map_ = map_tiles(program_); });
    if (problems_.size() == before) {
      has_tiles_ = std::find(map_.on_tile.begin(), map_.on_tile.end(), 1) != map_.on_tile.end();
      for (int i = 0; i < count_; ++i) attempt([&] { check_kind(i); });
      for (int i = 0; i < count_; ++i) attempt([&] { check_row_partial(i); });
      check_stores();
    }
    std::stable_sort(problems_.begin(), problems_.end(),
                     [](const Problem& a, const Problem& b) { return a.step < b.step; });
    return std::move(problems_);
  }

 private:
  const Step& step(int i) const { return program_.steps[i]; }
  const TensorDecl& tensor(int i) const { return program_.tensors[i]; }

  // Limits the number of reported problems.
  void attempt(const auto& rule) {
    constexpr size_t kMostProblems = 50;
    if (problems_.size() >= kMostProblems) return;
    try {
      rule();
    } catch (Problem& problem) {
      problems_.push_back(std::move(problem));
    }
  }

  void check_size(const Dim& dim, int at, const std::string& what) {
    check(!dim.is_constant() || dim.constant() > 0, at,
          [&] { return what + " has size " + dim.text() + "; sizes are positive"; });
  }

  void check_tensor(const TensorDecl& t) {
    check(is_name(t.name), -1, [&] {
      return "tensor name '" + t.name + "' is empty or has characters that text cannot hold";
    });
    check(names_.insert(t.name).second, -1,
          [&] { return "tensor '" + t.name + "' is declared twice"; });
    check_size(t.shape.rows, -1, "tensor '" + t.name + "'");
    check_size(t.shape.cols, -1, "tensor '" + t.name + "'");
    if (t.kind == TensorKind::dense) {
      check(t.lanes == 1, -1,
            [&] { return "dense tensor '" + t.name + "' has more than one lane"; });
    } else {
      check(!t.is_constant, -1, [&] { return "partial '" + t.name + "' is no constant"; });
      check(t.dtype == DType::f32, -1, [&] { return "partial '" + t.name + "' must be f32"; });
      check(t.lanes >= 1 && t.lanes <= kMostPartialLanes, -1,
            [&] { return "partial '" + t.name + "' has " + std::to_string(t.lanes) + " lanes"; });
    }
  }

  // Checks that the step has the shape that its kind's rule derives from operands and tensors.
  void check_step(int i) {
    const Step& s = step(i);
    check_size(s.shape.rows, i, "its value");
    check_size(s.shape.cols, i, "its value");
    for (int operand : s.operands) {
      check(operand >= 0 && operand < i, i,
            [&] { return "operand " + v(operand) + " is used before it is made"; });
      check(!is_effect(step(operand)), i,
            [&] { return "operand " + v(operand) + " is an effect and has no value"; });
      check(!is_selection(step(operand)) || is_vector_store(s), i, [&] {
        return "operand " + v(operand) + " is a selected column, which can only be stored";
      });
    }
    const StepInfo& kind = info(s.kind());
    check(static_cast<int>(s.op()) < kElementwiseCount, i,
          [] { return std::string("unknown operation"); });
    const auto count =
        static_cast<size_t>(is_elementwise(s) ? info(s.op()).arity : kind.operands());
    check(s.operands.size() == count, i, [&] {
      return "it takes " + std::to_string(count) + " operands and has " +
             std::to_string(s.operands.size());
    });
    for (int t : tensors_of(s)) {
      check(t >= 0 && t < static_cast<int>(program_.tensors.size()), i,
            [&] { return "tensor index " + std::to_string(t) + " is out of range"; });
      check(kind.takes(Argument::partial) || kind.takes(Argument::reduction) ||
                tensor(t).kind == TensorKind::dense,
            i, [&] {
              return "tensor '" + tensor(t).name + "' holds partials; only combine reads them";
            });
    }
    const auto is_valid = [&](int operand) { return is_valid_[static_cast<size_t>(operand)] != 0; };
    if (!std::all_of(s.operands.begin(), s.operands.end(), is_valid)) return;
    kind.shape({program_, s, sizes_, tensor_sizes_, step_sizes_, &s.shape, i});
    if (kind.check != nullptr) kind.check({program_, s, i});
    is_valid_[static_cast<size_t>(i)] = 1;
  }

  void check_uses() {
    std::vector<char> used(count_, 0);
    std::vector<char> named(program_.tensors.size(), 0);
    for (const Step& s : program_.steps) {
      for (int operand : s.operands) used[operand] = 1;
      for (int t : tensors_of(s)) named[t] = 1;
    }
    for (int i = 0; i < count_; ++i) {
      attempt([&] {
        check(used[i] || is_effect(step(i)), i,
              [] { return std::string("its value is never used; store it or remove the step"); });
      });
    }
    for (size_t t = 0; t < named.size(); ++t) {
      attempt([&] {
        check(named[t], -1,
              [&] { return "no step names tensor '" + program_.tensors[t].name + "'"; });
      });
    }
  }

  void check_kind(int i) {
    const Step& s = step(i);
    if (info(s).group == StepGroup::finalizer) {
      check(!has_tiles_, i, [&] {
        return "a " + std::string(info(s).name) +
               " belongs to a finalizer, this program has tiles; make two programs";
      });
    }
    if (!is_effect(s)) {
      check(!is_selection(s) || map_.on_tile[s.operands[0]], i,
            [] { return std::string("columns are selected from a tile, not from a vector"); });
      return;
    }
    const int operand = s.operands[0];
    const bool stores_vector = !map_.on_tile[operand] || is_selection(step(operand));
    if (is_vector_store(s)) {
      check(stores_vector, i, [] { return std::string("a tile is stored by store_tile"); });
      check(map_.on_tile[operand] || !has_tiles_, i, [] {
        return std::string(
            "a vector that comes from no tile is stored by a program of its own, a finalizer");
      });
    } else {
      check(!stores_vector, i,
            [&] { return std::string(info(s).name) + " needs a tile, its operand is a vector"; });
    }
  }

  void check_row_partial(int i) {
    const Step& s = step(i);
    if (!is_row_partial(s)) return;
    const Dim& base = map_.spaces[map_.space[i]].shape.cols;
    const TensorDecl& t = tensor(s.tensor());
    check(t.shape.cols == base, i, [&] {
      return "row partial '" + t.name + "' is declared for " + t.shape.cols.text() +
             " columns, its tile space has " + base.text() + " base columns";
    });
    check(!info(s.partial()).needs_count || s.shape.cols == base, i, [&] {
      return "a " + std::string(info(s.partial()).name) +
             " row partial needs a value of the base width (how many values one covers would be "
             "unknown); reduce the members of the pairs one by one";
    });
  }

  // A tensor is stored once; a scalar may be raised by several values. A stored tensor may also be
  // read in place: by tile (or vector) loads before the store, whose values are used only in the
  // store's tile space and at the same position.
  void check_stores() {
    std::vector<int> stored(program_.tensors.size(), -1);
    for (int i = 0; i < count_; ++i) {
      if (!is_effect(step(i))) continue;
      int& by = stored[step(i).tensor()];
      const bool is_raised_again = by >= 0 && is_maximum(step(by)) && is_maximum(step(i));
      attempt([&] {
        check(by < 0 || is_raised_again, i, [&] {
          return "tensor '" + tensor(step(i).tensor()).name + "' is stored twice, also at " +
                 place_of_step(by);
        });
      });
      by = i;
      attempt([&] {
        check(!tensor(step(i).tensor()).is_constant, i, [&] {
          return "'" + tensor(step(i).tensor()).name + "' is a constant, and is stored here";
        });
      });
    }
    for (int i = 0; i < count_; ++i) attempt([&] { check_reads(i, stored); });
  }

  // `stored`: the step that stores each tensor.
  void check_reads(int i, const std::vector<int>& stored) {
    const Step& s = step(i);
    const auto refuse_stored = [&](int t) {
      check(t < 0 || stored[t] < 0, i, [&] {
        return "tensor '" + tensor(t).name + "' is stored at " + place_of_step(stored[t]) +
               " and cannot be read as a whole, because an input and an output of the same name "
               "share memory; store the result under another name";
      });
    };
    for (const GemmSegment& segment : s.segments())
      for (const int t : segment.tensors()) refuse_stored(t);
    refuse_stored(s.row_index());
    if (is_effect(s) || s.tensor() < 0 || stored[s.tensor()] < 0) return;
    const int store = stored[s.tensor()];
    const Step& by = step(store);
    bool in_place = i < store && by.shape == s.shape && s.repeat().is(1) && s.row_index() < 0 &&
                    (map_.on_tile[i] ? is_tile_store(by) && map_.space[i] == map_.space[store] &&
                                           map_.pairing[i] == map_.pairing[store] &&
                                           map_.grouped[i] == map_.grouped[store]
                                     : is_vector_store(by) && !map_.on_tile[store]);
    for (int j = 0; j < count_ && in_place && !map_.on_tile[i]; ++j) {
      for (int operand : step(j).operands) {
        if (operand == i) in_place = map_.space[j] == map_.space[store];
      }
    }
    check(in_place, i, [&] {
      return "tensor '" + tensor(s.tensor()).name + "' is stored at " + place_of_step(store) +
             "; it may only be read before, at the same place of the same tile, because an input "
             "and "
             "an output of the same name share memory; or store the result under another name";
    });
  }

  const Program& program_;
  const int count_;
  std::vector<char> is_valid_;  // steps that broke no rule and whose operands did not either
  SizeSet sizes_;
  std::vector<Sizes> tensor_sizes_;
  std::vector<Sizes> step_sizes_;
  TileMap map_;
  bool has_tiles_ = false;
  std::set<std::string_view> names_;
  std::vector<Problem> problems_;
};

}  // namespace

std::vector<Problem> find_problems(const Program& program) { return Verifier(program).run(); }

}  // namespace coda::program

namespace coda {

void verify(const Program& program) {
  const std::vector<program::Problem> problems = program::find_problems(program);
  if (problems.empty()) return;
  const int step = problems.front().step;
  const std::string message =
      program::with_places(problems.front().message, [](int i) { return program::step_text(i); });
  const std::string where =
      step < 0 ? ""
               : program::step_text(step) + ", " + program::describe_step(program, step) + ": ";
  throw Error("program '" + program.name + "': " + where + message);
}

}  // namespace coda
