// SPDX-License-Identifier: Apache-2.0
// Tile spaces are independent, so each is fitted separately. A space that does not fit is cut in
// two: some steps (the trouble) and everything that depends on them form the second half, and the
// values that cross are a minimum cut after the GEMMs of the first half. Halves are cut again if
// necessary. At the end the first parts of all spaces are merged, and likewise the second parts, so
// that kernels have many tiles.
#include "gpu/legalise/legalise.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "coda/error.h"
#include "gpu/legalise/plain_spaces.h"
#include "plan/partition/min_cut.h"
#include "program/tile_map.h"
#include "program/vocabulary.h"

namespace coda::gpu {
namespace {

constexpr int kMostCuts = 6;          // nested cuts
constexpr double kLaunchBytes = 256;  // estimated cost of a launch, in bytes per row
constexpr double kSavedBytes = 8;     // store and load of an fp32 number

using Steps = std::set<int>;
using Plans = std::vector<PartPlan>;

// Two halves of a part and their cost.
struct Cut {
  PartPlan first;
  PartPlan second;
  double cost = 0;
};

class Legaliser {
 public:
  Legaliser(const Program& program, const DimValues& sizes, const IsRefused& is_refused)
      : program_(program),
        sizes_(sizes),
        is_refused_(is_refused),
        map_(program::map_tiles(program)) {}

  Plans run() {
    std::map<int, PartPlan> spaces;
    for (int i = 0; i < count(); ++i) {
      if (program::is_effect(step(i))) spaces[map_.space[i]].effects.push_back(i);
    }
    Plans result;
    for (const auto& [space, whole] : spaces) {
      std::optional<Plans> parts = fit({}, whole, kMostCuts);
      if (!parts) parts = one_at_a_time(space, whole);
      if (!parts) return {};
      if (result.size() < parts->size()) result.resize(parts->size());
      for (size_t p = 0; p < parts->size(); ++p) {
        const auto join = [](std::vector<int>& all, const std::vector<int>& more) {
          all.insert(all.end(), more.begin(), more.end());
          std::sort(all.begin(), all.end());
        };
        join(result[p].effects, (*parts)[p].effects);
        join(result[p].kept, (*parts)[p].kept);
      }
    }
    return result;
  }

 private:
  int count() const { return static_cast<int>(program_.steps.size()); }
  const Step& step(int i) const { return program_.steps[i]; }

  // The part split into parts that fit, appended to `before`.
  std::optional<Plans> fit(const Plans& before, const PartPlan& whole, int cuts) const {
    Plans plans = before;
    plans.push_back(whole);
    const std::optional<SplitProgram> split = split_into(plans);
    if (!split) return std::nullopt;
    if (!is_refused_(split->parts.back())) return Plans{whole};
    if (cuts == 0) return std::nullopt;
    std::vector<Cut> candidates = cuts_of(before, whole, split->parts.back());
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Cut& a, const Cut& b) { return a.cost < b.cost; });
    for (const Cut& cut : candidates) {
      std::optional<Plans> parts = fit(before, cut.first, cuts - 1);
      if (!parts) continue;
      Plans so_far = before;
      so_far.insert(so_far.end(), parts->begin(), parts->end());
      const std::optional<Plans> rest = fit(so_far, cut.second, cuts - 1);
      if (!rest) continue;
      parts->insert(parts->end(), rest->begin(), rest->end());
      return parts;
    }
    return std::nullopt;
  }

  // A kernel for each value, from memory to memory: always fits, but is slow.
  std::optional<Plans> one_at_a_time(int space, const PartPlan& whole) const {
    Steps needed(whole.effects.begin(), whole.effects.end());
    for (int i = count() - 1; i >= 0; --i) {
      if (needed.contains(i)) needed.insert(step(i).operands.begin(), step(i).operands.end());
    }
    Plans plans;
    for (int i : needed) {
      if (map_.space[i] == space && can_keep(i)) plans.push_back({.effects = {}, .kept = {i}});
    }
    for (int effect : whole.effects) plans.push_back({.effects = {effect}, .kept = {}});
    const std::optional<SplitProgram> split = split_into(plans);
    if (!split) return std::nullopt;
    for (const ProgramPart& part : split->parts) {
      if (is_refused_(part)) return std::nullopt;
    }
    return plans;
  }

  std::optional<SplitProgram> split_into(const Plans& plans) const {
    try {
      return split_program(program_, plans);
    } catch (const Error&) {
      return std::nullopt;  // an in-place store is in another part than its load
    }
  }

  // ---- Candidate cuts.

  std::vector<Cut> cuts_of(const Plans& before, const PartPlan& whole,
                           const ProgramPart& part) const {
    const Steps made(part.origin.begin(), part.origin.end());
    Steps products;
    for (int i : made) {
      if (i >= 0 && program::is_product(step(i))) products.insert(i);
    }
    std::vector<Cut> cuts;
    const auto attempt = [&](const Steps& trouble, bool keeps_all) {
      if (trouble.empty()) return;
      std::optional<Cut> cut = cut_before(before, whole, made, trouble, keeps_all);
      if (cut) cuts.push_back(*std::move(cut));
    };
    Steps groups;       // steps that a GEMM's epilogue may not support
    Steps pairs;        // pairs that may not fit with a GEMM of any width
    Steps sums;         // of groups
    Steps repetitions;  // steps that read repeated groups
    Steps totals;       // steps that read sums of groups
    Steps epilogue;     // all steps that depend on a GEMM
    Steps plain;        // GEMMs that tensor cores do not support
    for (int i : made) {
      if (i < 0) continue;
      const Step& s = step(i);
      const bool reduces = program::is_column_partial(s) && info(s.partial()).lanes > 1;
      const bool is_group = program::sums_groups(s) || program::repeats_groups(s);
      const bool leaves_bytes = program::is_transposed_store(s) || program::is_maximum(s);
      if (reduces || is_group || leaves_bytes) groups.insert(i);
      if (program::splits_pairs(s) || program::merges_pairs(s) ||
          (program::is_row_partial(s) && !map_.pairing[i].is(0))) {
        pairs.insert(i);
      }
      if (program::sums_groups(s)) sums.insert(i);
      if (is_plain_product(program_, s)) plain.insert(i);
      for (int operand : s.operands) {
        if (made.contains(operand) && program::repeats_groups(step(operand))) repetitions.insert(i);
        if (made.contains(operand) && program::sums_groups(step(operand))) totals.insert(i);
        if (epilogue.contains(operand) || products.contains(operand)) epilogue.insert(i);
      }
    }
    if (products.empty()) {
      attempt(sums, true);
      attempt(totals, true);
      attempt(repetitions, true);
      attempt(pairs, true);
      return cuts;
    }
    if (!plain.empty()) {
      if (plain.size() < products.size()) {
        Steps others;
        std::set_difference(products.begin(), products.end(), plain.begin(), plain.end(),
                            std::inserter(others, others.end()));
        attempt(others, false);
      }
      attempt(epilogue, false);
      return cuts;
    }
    attempt(groups, false);
    pairs.insert(groups.begin(), groups.end());
    attempt(pairs, false);
    for (int product : products) {
      Steps alike;  // GEMMs that may share its tile
      for (int other : products) {
        if (reads_the_same(product, other)) alike.insert(other);
      }
      if (alike.size() < products.size()) attempt(alike, false);
      if (alike.size() > 1 || alike.size() < products.size()) attempt({product}, false);
    }
    attempt(epilogue, false);
    return cuts;
  }

  bool reads_the_same(int product, int other) const {
    const std::vector<GemmSegment>& a = step(product).segments();
    const std::vector<GemmSegment>& b = step(other).segments();
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const GemmSegment& x, const GemmSegment& y) {
                        return x.a == y.a && x.scales_a == y.scales_a &&
                               x.transpose_a == y.transpose_a && x.transpose_b == y.transpose_b;
                      });
  }

  // The trouble and its dependents become the second half. What crosses is a minimum cut or, with
  // `keeps_all`, everything that the second half reads of the first.
  std::optional<Cut> cut_before(const Plans& before, const PartPlan& whole, const Steps& made,
                                Steps trouble, bool keeps_all) const {
    for (;;) {
      Steps later;
      for (int i : made) {
        if (i < 0) continue;
        const std::vector<int>& operands = step(i).operands;
        const bool depends = std::any_of(operands.begin(), operands.end(),
                                         [&](int operand) { return later.contains(operand); });
        if (depends || trouble.contains(i)) later.insert(i);
      }
      Cut cut;
      const auto divide = [&](const std::vector<int>& steps, std::vector<int>& first,
                              std::vector<int>& second) {
        for (int i : steps) (later.contains(i) ? second : first).push_back(i);
      };
      divide(whole.effects, cut.first.effects, cut.second.effects);
      divide(whole.kept, cut.first.kept, cut.second.kept);
      for (int value : crossing(before, cut.first, made, later, keeps_all)) {
        if (std::find(cut.first.kept.begin(), cut.first.kept.end(), value) == cut.first.kept.end())
          cut.first.kept.push_back(value);
      }
      std::sort(cut.first.kept.begin(), cut.first.kept.end());
      if (cut.first == PartPlan{} || cut.second == PartPlan{}) return std::nullopt;

      Plans plans = before;
      plans.push_back(cut.first);
      plans.push_back(cut.second);
      const std::optional<SplitProgram> split = split_into(plans);
      if (split) {
        // The second half must not read the old value of a tensor that the first half stores.
        const int overwritten = overwritten_store(cut.first, split->parts.back());
        if (overwritten < 0) {
          if (makes_as_much(split->parts.back(), made)) return std::nullopt;
          if (makes_as_much(split->parts[split->parts.size() - 2], made)) return std::nullopt;
          cut.cost = cost(*split);
          return cut;
        }
        trouble.insert(overwritten);
        continue;
      }
      return std::nullopt;
    }
  }

  static bool makes_as_much(const ProgramPart& half, const Steps& made) {
    const Steps own(half.origin.begin(), half.origin.end());
    return std::includes(own.begin(), own.end(), made.begin(), made.end());
  }

  int overwritten_store(const PartPlan& first, const ProgramPart& second) const {
    for (int store : first.effects) {
      for (int load : second.origin) {
        if (load >= 0 && step(load).operands.empty() &&
            step(load).tensor() == step(store).tensor() && step(store).tensor() >= 0) {
          return store;
        }
      }
    }
    return -1;
  }

  std::vector<int> crossing(const Plans& before, const PartPlan& first, const Steps& made,
                            const Steps& later, bool keeps_all) const {
    Steps read;  // values of the first half that are read
    for (int i : later) {
      for (int operand : step(i).operands) {
        if (made.contains(operand) && !later.contains(operand) && can_keep(operand))
          read.insert(operand);
      }
    }
    if (keeps_all) return {read.begin(), read.end()};
    CutProblem problem;
    problem.vertices = count();
    problem.capacity.assign(count(), kNever);
    for (int i : made) {
      if (i < 0 || later.contains(i)) continue;
      if (can_keep(i)) problem.capacity[i] = saved_bytes(before, first, i);
      if (program::is_product(step(i))) problem.sources.push_back(i);
      for (int operand : step(i).operands) {
        if (made.contains(operand)) problem.edges.emplace_back(operand, i);
      }
    }
    problem.needs.assign(read.begin(), read.end());
    if (problem.sources.empty() || problem.needs.empty()) return {};
    return minimum_cut(problem);
  }

  bool can_keep(int i) const {
    const Step& s = step(i);
    return map_.on_tile[i] && !program::is_tile_load(s) && !program::is_selection(s) &&
           !program::is_effect(s);
  }

  // ---- Bytes moved per row.

  double width(const Shape& shape) const {
    return static_cast<double>(shape.cols.evaluate(sizes_));
  }

  double saved_bytes(const Plans& before, const PartPlan& first, int value) const {
    const Step& v = step(value);
    const bool is_rounded = program::is_rounding(v) && v.dtype() != DType::f32;
    const double bytes = is_rounded ? kSavedBytes / 2 : kSavedBytes;
    const auto stores = [&](const PartPlan& plan) {
      return std::any_of(plan.effects.begin(), plan.effects.end(), [&](int i) {
        const Step& store = step(i);
        if (!program::is_tile_store(store)) return false;
        const int operand = store.operands[0];
        const DType type = program_.tensors[store.tensor()].dtype;
        return program::is_rounding(v)
                   ? type == v.dtype() && (operand == value || operand == v.operands[0])
                   : type == DType::f32 && operand == value;
      });
    };
    const bool is_stored = stores(first) || std::any_of(before.begin(), before.end(), stores);
    return width(v.shape) * (is_stored ? bytes / 2 : bytes);
  }

  // The cost of the last two parts. A part that does not fit will at least keep its GEMMs.
  double cost(const SplitProgram& split) const {
    double bytes = 0;
    for (size_t p = split.parts.size() - 2; p < split.parts.size(); ++p) {
      const ProgramPart& part = split.parts[p];
      double products = 0;
      bytes += kLaunchBytes;
      for (const Step& s : part.program.steps) {
        if (program::is_product(s)) products += kSavedBytes * width(s.shape) + kLaunchBytes;
        if (!program::is_tile_load(s) && !program::is_tile_store(s)) continue;
        const TensorDecl& stored = part.program.tensors[s.tensor()];
        bytes += width(stored.shape) * static_cast<double>(size_of(stored.dtype));
      }
      if (is_refused_(part)) bytes += products + kLaunchBytes;
    }
    return bytes;
  }

  const Program& program_;
  const DimValues& sizes_;
  const IsRefused& is_refused_;
  const program::TileMap map_;
};

}  // namespace

std::vector<PartPlan> legalise(const Program& program, const DimValues& sizes,
                               const IsRefused& is_refused) {
  return Legaliser(program, sizes, is_refused).run();
}

}  // namespace coda::gpu
