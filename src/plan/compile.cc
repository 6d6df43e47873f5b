// SPDX-License-Identifier: Apache-2.0
// Rewrites, partitions and emits for one set of choices after another, and keeps the cheapest plan:
// coordinate descent over one bit a column factor, one a row factor, and (for speed) one a forward
// operand that would be made again. Equal to exhaustive search in every case tried.
#include "coda/compile.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "coda/error.h"
#include "plan/block_rows.h"
#include "plan/check_reads.h"
#include "plan/emit.h"
#include "plan/equivalence.h"
#include "plan/in_place.h"
#include "plan/normed_again.h"

namespace coda {
namespace {

// One point of the search: choices of the rewriting, and which dropped operands are saved.
struct Point {
  std::vector<int> column_factors;
  std::vector<int> pinned;
  std::vector<int> also_saved;
  friend auto operator<=>(const Point&, const Point&) = default;
};

struct Attempt {
  Plan plan;
  Alternative alternative;
  size_t column_factors = 0;
  std::vector<bool> row_affine;    // by column factor
  std::vector<bool> normed_again;  // by column factor: is_normed_again
  size_t row_factors = 0;
  CandidateClasses classes;
  size_t dropped = 0;
};

// A graph that cannot be planned is refused before: what is wrong with a program here is ours.
void verify_programs(const Plan& plan) {
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase) {
      const auto* program = std::get_if<Program>(&step.work);
      if (program == nullptr) continue;
      try {
        verify(*program);
      } catch (const Error& error) {
        throw InternalError(std::string("compile wrote a wrong program: ") + error.what());
      }
    }
  }
}

std::string describe(const Point& p) {
  std::string column;
  std::string row;
  std::string saved;
  for (int c : p.column_factors) column += c == 0 ? 'h' : c == 1 ? 'F' : 'n';
  for (int r : p.pinned) row += r != 0 ? 'd' : 'u';
  for (int s : p.also_saved) saved += s != 0 ? 's' : '-';
  return column + " " + row + (saved.empty() ? "" : " " + saved);
}

class Search {
 public:
  Search(const Graph& graph, const CompileRequest& request, const CompileOptions& options)
      : graph_(graph), request_(request), options_(options) {}

  Compiled run() {
    Point point = start();
    if (options_.fuse && options_.fold.empty() && options_.pin.empty()) point = descend(point);
    Compiled compiled;
    const Attempt& best = attempt(point);
    for (auto& [p, a] : attempts_) {
      if (p.column_factors.size() != a->column_factors) continue;  // only asked for what there is
      a->alternative.chosen = p == point;
      compiled.alternatives.push_back(a->alternative);
    }
    compiled.plan = best.plan;
    verify_programs(compiled.plan);
    verify_reads(compiled.plan);
    reuse_in_place(compiled.plan, options_.overwrite_saved);
    verify_reads(compiled.plan);
    return compiled;
  }

 private:
  // Gradients that are added to are the caller's before they are ours.
  void verify_reads(const Plan& plan) const {
    std::set<std::string> given;
    for (const GradientRequest& g : request_.gradients) {
      if (g.accumulate) given.insert(g.name);
    }
    check_reads(plan, given, options_.sizes);
  }

  // The first plan tells how many choices there are; forced ones are taken as given.
  Point start() {
    Point point;
    const Attempt* a = &attempt(point);
    point.column_factors.assign(a->column_factors, 0);
    for (size_t i = 0; i < a->column_factors; ++i) {
      point.column_factors[i] = legal_choices(*a, {i}).first;
      if (i < options_.fold.size() && options_.fold[i]) point.column_factors[i] = 1;
    }
    point.pinned.assign(a->row_factors, 0);
    for (size_t i = 0; i < std::min(options_.pin.size(), point.pinned.size()); ++i)
      point.pinned[i] = options_.pin[i];
    a = &attempt(point);
    if (options_.objective == Objective::speed) point.also_saved.assign(a->dropped, 0);
    return point;
  }

  // Which of h, F, n (0, 1, 2) column factors that choose alike may take (docs/numerics.md). Behind
  // a mean's subtraction a stored x ⊙ w cancels against the mean's term; so does a product with a
  // folded weight, which only storage of 16 bits hides. In fp16 a stored x ⊙ w may overflow. In 16
  // bits what a second norm takes out again is the rounding of h, not that of a folded weight.
  std::pair<int, int> legal_choices(const Attempt& a, const std::vector<size_t>& factors) const {
    const bool single = options_.storage == DType::f32;
    std::pair<int, int> legal{0, 2};
    for (size_t i : factors) {
      const bool no_h = a.row_affine[i] || options_.storage == DType::f16;
      const bool no_fold = single ? a.row_affine[i] : a.normed_again[i];
      legal.first = std::max(legal.first, !no_h ? 0 : no_fold ? 2 : 1);
      legal.second = std::min(legal.second, no_h ? 2 : no_fold ? 0 : 1);
    }
    return legal;
  }

  // One flip a class of candidates: layers that look alike choose alike.
  Point descend(Point point) {
    const CandidateClasses classes = attempt({}).classes;
    auto members = [](const std::vector<int>& numbers, int number) {
      std::vector<size_t> found;
      for (size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] == number) found.push_back(i);
      }
      return found;
    };
    for (bool better = true; better;) {
      better = false;
      for (int c = 0;; ++c) {
        const std::vector<size_t> same = members(classes.column_factors, c);
        if (same.empty()) break;
        const auto [first, last] = legal_choices(attempt(point), same);
        for (int choice = first; choice <= last; ++choice) {
          Point next = point;
          for (size_t i : same) next.column_factors[i] = choice;
          better = keep_better(point, next) || better;
        }
      }
      // fp16's range does not hold r ⊙ dz: its row factors stay on the other operand
      // (docs/numerics.md).
      for (int c = 0; options_.storage != DType::f16; ++c) {
        const std::vector<size_t> same = members(classes.row_factors, c);
        if (same.empty()) break;
        Point next = point;
        for (size_t i : same) next.pinned[i] ^= 1;
        better = keep_better(point, next) || better;
      }
      // Operands that would be made again are few kinds too; all of them are saved, or none.
      if (!point.also_saved.empty()) {
        Point next = point;
        for (int& saved : next.also_saved) saved ^= 1;
        better = keep_better(point, next) || better;
      }
    }
    return point;
  }

  bool keep_better(Point& point, const Point& next) {
    if (next == point || !cheaper(attempt(next).alternative, attempt(point).alternative))
      return false;
    point = next;
    return true;
  }

  bool cheaper(const Alternative& a, const Alternative& b) const {
    const bool by_memory = options_.objective == Objective::memory;
    const double first = by_memory ? a.saved_bytes - b.saved_bytes : a.seconds - b.seconds;
    const double second = by_memory ? a.seconds - b.seconds : a.saved_bytes - b.saved_bytes;
    const double tiny = 1e-9 * (by_memory ? b.saved_bytes : b.seconds);
    if (first < -tiny || first > tiny) return first < 0;
    if (second < -1e-12 || second > 1e-12) return second < 0;
    return a.moved_bytes < b.moved_bytes;
  }

  const Attempt& attempt(const Point& point) {
    std::unique_ptr<Attempt>& entry = attempts_[point];
    if (entry == nullptr) entry = std::make_unique<Attempt>(make(point));
    return *entry;
  }

  Attempt make(const Point& point) const {
    Choices choices;
    for (int c : point.column_factors)
      choices.column_factors.push_back(static_cast<ColumnFactor>(c));
    for (int p : point.pinned) choices.pinned.push_back(p != 0);
    BlockRows blocks;
    const auto accept = [&](const JointGraph& joint) {
      blocks = choose_block_rows(joint, options_);
      return blocks.rows > 0;
    };
    if (options_.block_rows == 0) {
      return make(point, rewrite_jointly(graph_, request_, choices, options_.fuse), 0);
    }
    const JointGraph joint =
        rewrite_jointly(graph_, request_, choices, options_.fuse, options_.sizes, accept);
    Attempt a = make(point, joint, blocks.rows);
    if (!a.plan.loops.empty()) return a;
    if (blocks.rows > 0) {  // a program turned out to be of all rows
      blocks.why_whole = a.plan.notes.front();
      a = make(point, rewrite_jointly(graph_, request_, choices, options_.fuse), 0);
    }
    a.plan.notes = {"not in blocks of rows: " + blocks.why_whole};
    return a;
  }

  Attempt make(const Point& point, const JointGraph& joint, int64_t block_rows) const {
    CompileOptions options = options_;
    options.block_rows = block_rows;
    PartitionRequest partition_request;
    partition_request.joint = &joint;
    partition_request.sizes = options_.sizes;
    partition_request.storage_bytes = static_cast<double>(size_of(options_.storage));
    partition_request.fuse = options_.fuse;
    Partition parts = partition(partition_request);
    const std::vector<int> dropped = parts.dropped;
    for (size_t i = 0; i < std::min(point.also_saved.size(), dropped.size()); ++i) {
      if (point.also_saved[i] != 0) partition_request.also_saved.insert(dropped[i]);
    }
    if (!partition_request.also_saved.empty()) parts = partition(partition_request);

    Attempt a;
    a.plan = emit(joint, parts, request_, options);
    a.column_factors = joint.candidates.column_factors.size();
    for (int w : joint.candidates.column_factors) {
      const auto& affine = joint.candidates.row_affine;
      a.row_affine.push_back(std::find(affine.begin(), affine.end(), w) != affine.end());
      a.normed_again.push_back(is_normed_again(graph_, w));
    }
    a.row_factors = joint.candidates.row_factors.size();
    a.classes = classify(joint);
    a.dropped = dropped.size();
    a.alternative.choice = describe(point);
    a.alternative.saved_bytes = saved_bytes(a.plan, options_.sizes);
    for (const auto* phase : {&a.plan.forward, &a.plan.backward}) {
      for (const PlanStep& step : *phase) {
        const StepCost cost = cost_of(step, a.plan, options_.sizes, options_.rates);
        a.alternative.seconds += cost.seconds;
        a.alternative.moved_bytes += cost.bytes;
      }
    }
    return a;
  }

  const Graph& graph_;
  const CompileRequest& request_;
  const CompileOptions& options_;
  std::map<Point, std::unique_ptr<Attempt>> attempts_;
};

}  // namespace

Compiled compile(const Graph& graph, const CompileRequest& request, const CompileOptions& options) {
  require(!request.outputs.empty() || !request.gradients.empty(),
          "compile: nothing is asked for; name an output");
  require(request.gradients.empty() || !request.seeds.empty(),
          "compile: gradients need a seeded output");
  return Search(graph, request, options).run();
}

}  // namespace coda
