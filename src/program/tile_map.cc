// SPDX-License-Identifier: Apache-2.0
// Finds tile spaces. Steps that share a tile form a component. Inside it, values connected
// elementwise form a class with one width. Classes are linked by pairs (half and full) and by
// groups (narrow and wide).
#include "program/tile_map.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "coda/error.h"
#include "program/problem.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

// Disjoint sets of steps.
class DisjointSets {
 public:
  explicit DisjointSets(size_t size) : parent_(size) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int find(int i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(int i, int j) { parent_[std::max(find(i), find(j))] = std::min(find(i), find(j)); }

 private:
  std::vector<int> parent_;
};

bool is_leaf_vector(const Step& step) { return info(step).group == StepGroup::vector; }
bool changes_columns(const Step& step) { return info(step).columns != ColumnChange::none; }

// What is known about a class, with the step that implied it, for messages.
struct ClassFacts {
  int half = -1;    // it holds members of pairs
  int full = -1;    // it is split into pairs, or merged from them
  int narrow = -1;  // it has one column for a group
  int wide = -1;    // it is reduced over groups, or repeated from them
  Dim group = 0;    // of the pairs, if full
};

class TileMapper {
 public:
  explicit TileMapper(const Program& program)
      : program_(program),
        count_(static_cast<int>(program.steps.size())),
        components_(program.steps.size()),
        classes_(program.steps.size()) {}

  TileMap run() {
    find_tiles();
    map_.pairing.assign(count_, Dim(0));
    map_.grouped.assign(count_, 0);
    map_.space.assign(count_, -1);
    if (std::find(map_.on_tile.begin(), map_.on_tile.end(), 1) != map_.on_tile.end()) {
      join_steps();
      collect_facts();
      make_tile_spaces();
    } else {
      make_vector_spaces();
    }
    return std::move(map_);
  }

 private:
  const Step& step(int i) const { return program_.steps[i]; }

  void find_tiles() {
    map_.on_tile.assign(count_, 0);
    for (int i = 0; i < count_; ++i) {
      const Step& s = step(i);
      bool on_tile =
          info(s).group == StepGroup::source || (is_elementwise(s) && s.shape.is_tensor());
      for (int operand : s.operands) on_tile = on_tile || map_.on_tile[operand];
      map_.on_tile[i] = on_tile;
    }
  }

  void join_steps() {
    for (int i = 0; i < count_; ++i) {
      for (int operand : step(i).operands) {
        if (!map_.on_tile[operand]) continue;
        components_.join(i, operand);
        if (changes_columns(step(i))) continue;
        classes_.join(i, operand);
        const Shape& mine = step(i).shape;
        const Shape& theirs = step(operand).shape;
        check(!is_elementwise(step(i)) || mine == theirs, i, [&] {
          return "the value of " + place_of_step(operand) + " is a part of the tile with shape " +
                 theirs.text() + " and does not broadcast to " + mine.text() +
                 "; use repeat_group or split_pairs";
        });
      }
    }
  }

  void collect_facts() {
    for (int i = 0; i < count_; ++i) {
      const Step& s = step(i);
      if (!changes_columns(s)) continue;
      ClassFacts& result = facts_[classes_.find(i)];
      for (int operand : s.operands) {
        check(map_.on_tile[operand], i, [&] {
          return std::string(name_of(s.kind())) + " needs a tile, the value of " +
                 place_of_step(operand) + " is a vector";
        });
        ClassFacts& source = facts_[classes_.find(operand)];
        switch (info(s).columns) {
          case ColumnChange::none: break;
          case ColumnChange::split: result.half = i, set_group(source, i); break;
          case ColumnChange::merged: source.half = i, set_group(result, i); break;
          case ColumnChange::summed: result.narrow = i, source.wide = i; break;
          case ColumnChange::repeated: source.narrow = i, result.wide = i; break;
        }
      }
    }
    for (const auto& [id, facts] : facts_) {
      check(facts.half < 0 || facts.full < 0, std::max(facts.half, facts.full), [] {
        return std::string(
            "pairs of pairs: a tile holds values of one width and of twice that width only");
      });
      check(facts.narrow < 0 || (facts.half < 0 && facts.full < 0 && facts.wide < 0),
            std::max({facts.narrow, facts.half, facts.full, facts.wide}), [] {
              return std::string(
                  "a value with one column a group cannot be split, merged or grouped again");
            });
    }
  }

  void set_group(ClassFacts& facts, int i) {
    const Dim& group = step(i).group();
    check(facts.full < 0 || facts.group == group, i, [&] {
      return "columns that are pairs within " + facts.group.text() + " columns (at " +
             place_of_step(facts.full) + ") are also pairs within " + group.text() +
             "; a tile has one pairing: store the value and load it in another program";
    });
    facts.full = i;
    facts.group = group;
  }

  void make_tile_spaces() {
    std::map<int, int> index;  // root of a component -> space
    for (int i = 0; i < count_; ++i) {
      if (!map_.on_tile[i]) continue;
      const auto [found, is_new] =
          index.try_emplace(components_.find(i), static_cast<int>(index.size()));
      map_.space[i] = found->second;
      if (is_new) map_.spaces.emplace_back();
      map_.spaces[found->second].steps.push_back(i);
    }
    for (TileSpace& space : map_.spaces) {
      set_shape(space);
      add_vectors(space);
    }
  }

  void set_shape(TileSpace& space) {
    std::optional<Dim> base;
    bool has_pairs = false;
    for (int i : space.steps) {
      const auto found = facts_.find(classes_.find(i));
      has_pairs = has_pairs || (found != facts_.end() && found->second.half >= 0);
    }
    space.shape.rows = step(space.steps.front()).shape.rows;
    // The narrowest value: the members of pairs if there are any, else every value that does not
    // have one column per group.
    for (int i : space.steps) {
      const ClassFacts& facts = facts_[classes_.find(i)];
      if (facts.narrow < 0 && (!has_pairs || facts.half >= 0) && !base) base = columns(i);
    }
    invariant(base.has_value(), "a tile space has no columns");
    space.shape.cols = *base;
    for (int i : space.steps) {
      const ClassFacts& facts = facts_[classes_.find(i)];
      map_.grouped[i] = facts.narrow >= 0;
      if (facts.full >= 0) map_.pairing[i] = facts.group;
      check(step(i).shape.rows == space.shape.rows, i, [&] {
        return "its rows are " + step(i).shape.rows.text() + " and those of its tile space " +
               space.shape.rows.text();
      });
      if (facts.narrow >= 0) {
        check(!is_product(step(i)), i, [] {
          return std::string(
              "a product with one column a group of its tile: store it and load it in another "
              "program");
        });
        check(!is_row_partial(step(i)) && !is_column_partial(step(i)) && !is_selection(step(i)) &&
                  !is_maximum(step(i)),
              i,
              [] { return std::string("a value with one column a group is not reduced further"); });
        check(!is_transposed_store(step(i)), i, [] {
          return std::string("a value with one column a group is stored in its own order only");
        });
        continue;
      }
      const Dim width = columns(i);
      check(width == (facts.full >= 0 ? 2 * *base : *base), i, [&] {
        return "it has " + width.text() + " columns in a tile space of " + base->text() +
               " base columns; a value has the base width, or twice that through split_pairs or "
               "merge_pairs";
      });
    }
  }

  // The width of a step's class. A select_column and its store have the class of the value that is
  // selected from.
  Dim columns(int i) const {
    while (is_selection(step(i)) || is_vector_store(step(i))) {
      i = step(i).operands[0];
    }
    return step(i).shape.cols;
  }

  // Adds the vectors that the steps of a space use, directly or indirectly.
  void add_vectors(TileSpace& space) {
    std::vector<int> pending = space.steps;
    std::vector<char> seen(count_, 0);
    for (int i : space.steps) seen[i] = 1;
    while (!pending.empty()) {
      const int i = pending.back();
      pending.pop_back();
      for (int operand : step(i).operands) {
        if (map_.on_tile[operand] || seen[operand]) continue;
        seen[operand] = 1;
        space.steps.push_back(operand);
        pending.push_back(operand);
      }
    }
    std::sort(space.steps.begin(), space.steps.end());
  }

  // For a program without tiles: steps of one shape between two reductions (or transpositions) form
  // a space. Spaces are ordered so that each uses only values of earlier ones: scalars of the same
  // stage, or anything of earlier stages.
  void make_vector_spaces() {
    struct Key {
      int stage;
      bool is_vector;
      Shape shape;
      auto operator<=>(const Key&) const = default;
    };
    std::map<Key, std::vector<int>> groups;
    std::vector<int> stage(count_, 0);
    std::vector<Key> key(count_);
    for (int i = 0; i < count_; ++i) {
      const Step& s = step(i);
      const bool crosses = info(s).group == StepGroup::finalizer;
      for (int operand : s.operands)
        stage[i] = std::max(stage[i], stage[operand] + (crosses ? 1 : 0));
      if (is_leaf_vector(s)) continue;
      key[i] = {stage[i], !s.shape.is_scalar(), s.shape};
      groups[key[i]].push_back(i);
      for (int operand : s.operands) {
        if (!is_leaf_vector(step(operand))) continue;
        const Shape& shape = step(operand).shape;
        groups[crosses ? Key{0, !shape.is_scalar(), shape} : key[i]].push_back(operand);
      }
    }
    std::map<Key, int> index;
    for (auto& [group_key, steps] : groups) {
      std::sort(steps.begin(), steps.end());
      steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
      index[group_key] = static_cast<int>(map_.spaces.size());
      map_.spaces.push_back({group_key.shape, std::move(steps)});
    }
    for (int i = 0; i < count_; ++i) {
      if (!is_leaf_vector(step(i))) map_.space[i] = index.at(key[i]);
    }
  }

  const Program& program_;
  const int count_;
  DisjointSets components_;  // steps of one tile space
  DisjointSets classes_;     // steps of one width and pairing
  std::map<int, ClassFacts> facts_;
  TileMap map_;
};

}  // namespace

TileMap map_tiles(const Program& program) { return TileMapper(program).run(); }

}  // namespace coda::program

namespace coda {

std::vector<TileSpace> tile_spaces(const Program& program) {
  try {
    return program::map_tiles(program).spaces;
  } catch (const program::Problem& problem) {
    throw Error("program '" + program.name + "': " + program::step_text(problem.step) + ": " +
                program::with_places(problem.message, program::step_text));
  }
}

}  // namespace coda
