// SPDX-License-Identifier: Apache-2.0
// The search: rewrites, partitions and emits for one set of choices after another and keeps the
// cheapest plan. It is coordinate descent with one choice for each class of column factors, one for
// each class of row factors, and (for speed) one for forward operands that would be recomputed. In
// all cases that were tried, the result equals that of an exhaustive search.
//
// All layers choose alike, and each adds the same cost to a plan. So the choices of a deep model
// are found on a copy with few layers; its costs are extrapolated by the cost of one more layer.
// The whole model is planned only once.
#include "plan/search/search.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/name_pattern.h"
#include "base/nearest_name.h"
#include "coda/eight_bits.h"
#include "coda/error.h"
#include "coda/row_blocks.h"
#include "plan/after/aligned_copies.h"
#include "plan/after/check_reads.h"
#include "plan/after/eight_bits.h"
#include "plan/after/host_copies.h"
#include "plan/after/in_place.h"
#include "plan/after/parameter_copies.h"
#include "plan/partition/materialise.h"
#include "plan/search/equivalence.h"
#include "plan/search/layer_starts.h"
#include "plan/search/loss_rows.h"
#include "plan/search/repeated_layers.h"
#include "plan/search/second_norm.h"
#include "plan/write/emit.h"

namespace coda {
namespace {

// One point of the search: the choices of the rewriting, and whether dropped operands are saved.
struct Point {
  std::vector<int> column_factors;
  std::vector<int> pinned;
  bool saves_dropped = false;  // save operands that would be recomputed
  friend auto operator<=>(const Point&, const Point&) = default;
};

// The result of one set of rewriting choices, independent of which dropped operands are saved.
struct Rewritten {
  LossRows blocks;  // 0 rows: store everything whole
  std::shared_ptr<const JointGraph> joint;
  std::set<int> apart;        // values that do not fit into the tiles of their readers
  Materialised materialised;  // `joint` in the form that tiles support
  Partition parts;            // of that form, without additionally saved values
};

struct Attempt {
  Point point;
  std::shared_ptr<const Rewritten> from;
  Plan plan;
  Alternative alternative;

  const Candidates& candidates() const { return from->joint->candidates; }
};

// Whether both points rewrite the graph in the same way; choices that a point does not name are 0.
bool rewrite_alike(const Point& p, const Point& q) {
  const auto same = [](std::vector<int> a, std::vector<int> b) {
    a.resize(std::max(a.size(), b.size()), 0);
    b.resize(a.size(), 0);
    return a == b;
  };
  return same(p.column_factors, q.column_factors) && same(p.pinned, q.pinned);
}

// The tensors of a plan whose GEMMs stay in 16 bits (CompileOptions::eight_bits_except).
std::set<std::string> excepted_of(const Graph& graph, const CompileRequest& request,
                                  const CompileOptions& options) {
  std::set<std::string> tensors;
  require(options.eight_bits != EightBits::none || options.eight_bits_except.empty(),
          "products of '" +
              (options.eight_bits_except.empty() ? "" : options.eight_bits_except[0]) +
              "' are to stay in 16 bits, and no other product is in 8: leave it out, or choose a "
              "recipe of products in 8 bits (docs/fp8.md)");
  for (const std::string& pattern : options.eight_bits_except) {
    std::vector<std::string> parameters;
    bool is_there = false;
    for (int id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      if (node.op != Op::input || node.kind != InputKind::parameter) continue;
      parameters.push_back(node.name);
      if (!is_name_like(node.name, pattern)) continue;
      is_there = true;
      tensors.insert(node.name);
      for (const GradientRequest& gradient : request.gradients)
        if (gradient.input.id == id) tensors.insert(gradient.name);
    }
    require(is_there, "products of '" + pattern +
                          "' are to stay in 16 bits, and no parameter has such a name" +
                          nearest_name(pattern, parameters));
  }
  return tensors;
}

// Invalid graphs are rejected earlier, so an invalid program is a bug of the compiler.
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

// The number of layers of the small model. It must be large enough that each further layer is
// planned like the one before; this is checked on the costs of the whole model.
constexpr int kFewLayers = 2;
// The number with recomputed layers, which are not found in smaller models.
constexpr int kFewLayersAgain = 4;
// The minimum number of additional layers for which this is less work.
constexpr int kManyMore = 4;

bool about_equal(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(a, b); }

class Search {
 public:
  Search(const Graph& graph, const CompileRequest& request, const CompileOptions& options,
         const Forced& forced)
      : graph_(graph), request_(request), options_(options), forced_(forced) {
    if (options_.recomputed_layers == 0 || request_.gradients.empty()) return;
    starts_ = find_layer_starts(graph, request, options.sizes);
    // Layers after the last entry are not recomputed.
    saves_some_layers_ = std::ssize(starts_) > options_.recomputed_layers;
    if (saves_some_layers_) starts_.resize(static_cast<size_t>(options_.recomputed_layers));
  }

  Compiled run(SearchWork& work) {
    find_candidates();
    const bool is_free = options_.fuse && forced_.fold.empty() && forced_.pin.empty();
    if (!is_free || !choose_on_few_layers(work)) {
      start();
      if (is_free) descend();
    }
    work.plans = plans_;
    Compiled compiled;
    for (const auto& [p, tried] : tried_) {
      compiled.alternatives.push_back(tried);
      compiled.alternatives.back().chosen = p == best_.point;
    }
    compiled.plan = std::move(best_.plan);
    if (options_.recomputed_layers != 0 && starts_.empty())
      compiled.plan.notes.emplace_back(
          "no layers are recomputed: no equal consecutive layers were found");
    if (options_.aligns_outputs) add_aligned_copies(compiled.plan, options_.sizes);
    verify_programs(compiled.plan);
    verify_reads(compiled.plan);
    reuse_in_place(compiled.plan, options_.overwrite_saved);
    verify_reads(compiled.plan);
    if (options_.eight_bits != EightBits::none) {
      EightBitPlan made =
          with_eight_bit_products(compiled.plan, options_.sizes, options_.eight_bits,
                                  excepted_of(graph_, request_, options_));
      compiled.plan = std::move(made.plan);
      compiled.first_scales = std::move(made.first_scales);
      if (options_.copies_are_given)
        compiled.parameter_copies = take_parameter_copies(compiled.plan);
      verify_programs(compiled.plan);
      verify_reads(compiled.plan);
    }
    if (options_.layers_on_host) {
      keep_layers_on_host(compiled.plan);
      verify_reads(compiled.plan);
    }
    return compiled;
  }

 private:
  // Accumulated gradients and raised magnitudes are given by the caller.
  void verify_reads(const Plan& plan) const {
    std::set<std::string> given{kMagnitudes};
    for (const HostCopy& copy : plan.host_copies) given.insert(copy.fetched);
    for (const GradientRequest& g : request_.gradients) {
      if (g.accumulate) given.insert(g.name);
    }
    check_reads(plan, given, options_.sizes);
  }

  // Rewrites without choices to find the candidates. Forced choices are taken as given.
  void find_candidates() {
    unchosen_ = rewrite({}, options_.loss_rows != 0);
    classes_ = classify(*unchosen_->joint);
    const Candidates& found = unchosen_->joint->candidates;
    has_second_norm_ = has_second_norm(graph_, found.column_factors);
    Point& point = best_.point;
    point.column_factors.assign(classes_.column_factors.size(), 0);
    for (size_t i = 0; i < point.column_factors.size(); ++i) {
      point.column_factors[i] = legal_choices({i}).first;
      if (i < forced_.fold.size() && forced_.fold[i]) point.column_factors[i] = 1;
    }
    point.pinned.assign(classes_.row_factors.size(), 0);
    for (size_t i = 0; i < std::min(forced_.pin.size(), point.pinned.size()); ++i)
      point.pinned[i] = forced_.pin[i];
  }

  void start() {
    best_ = make(best_.point);
    count_dropped();
    best_.alternative.choice = describe(best_.point);
    tried_[best_.point] = best_.alternative;
  }

  void count_dropped() {
    if (options_.objective == Objective::speed) dropped_ = best_.from->parts.dropped.size();
  }

  // One letter for each candidate.
  std::string describe(const Point& p) const {
    std::string column;
    std::string row;
    for (int c : p.column_factors) column += c == 0 ? 'h' : c == 1 ? 'F' : 'n';
    for (int r : p.pinned) row += r != 0 ? 'd' : 'u';
    const std::string saved(dropped_, p.saves_dropped ? 's' : '-');
    return column + " " + row + (saved.empty() ? "" : " " + saved);
  }

  // Returns whether it succeeded.
  bool choose_on_few_layers(SearchWork& work) {
    if (!forced_.given.empty() || saves_some_layers_) return false;
    const int few_layers = starts_.empty() ? kFewLayers : kFewLayersAgain;
    const auto layers = find_repeated_layers(graph_, request_, few_layers + kManyMore);
    if (!layers) return false;
    const auto fewer = with_copies(graph_, request_, *layers, few_layers);
    const auto one_more = with_copies(graph_, request_, *layers, few_layers + 1);
    if (!fewer || !one_more) return false;
    Search few(fewer->graph, fewer->request, options_, forced_);
    Search next(one_more->graph, one_more->request, options_, forced_);
    std::future<void> found = std::async(std::launch::async, [&] { next.find_candidates(); });
    few.find_candidates();
    found.get();
    few.next_ = &next;
    few.layers_beyond_ = layers->copies - few_layers;
    few.start();
    few.descend();
    work.plans_of_few = few.plans_ + next.plans_;
    work.nodes_of_few = fewer->graph.size() + one_more->graph.size();
    const std::optional<Point> chosen = few.same_in(*this, few.best_.point);
    if (!few.is_alike_ || !chosen) return false;
    Attempt whole = make(*chosen);
    const Alternative& foretold = few.best_.alternative;
    const Alternative& is = whole.alternative;
    if (!about_equal(is.seconds, foretold.seconds) ||
        !about_equal(is.moved_bytes, foretold.moved_bytes) ||
        !about_equal(is.saved_bytes, foretold.saved_bytes)) {
      return false;
    }
    best_ = std::move(whole);
    count_dropped();
    for (const auto& [point, alternative] : few.tried_) {
      const std::optional<Point> here = few.same_in(*this, point);
      if (!here) continue;
      Alternative& tried = tried_[*here] = alternative;
      tried.choice = describe(*here);
    }
    return true;
  }

  // The point at which the other model's candidates choose as their classes do here. None if a
  // candidate has no class in this model or must not choose so.
  std::optional<Point> same_in(const Search& other, const Point& point) const {
    const auto carried = [](const std::vector<std::string>& from, const std::vector<int>& chosen,
                            const std::vector<std::string>& to) -> std::optional<std::vector<int>> {
      std::map<std::string, int> by_class;
      for (size_t i = 0; i < from.size(); ++i) by_class[from[i]] = chosen[i];
      std::vector<int> out;
      for (const std::string& key : to) {
        const auto found = by_class.find(key);
        if (found == by_class.end()) return std::nullopt;
        out.push_back(found->second);
      }
      return out;
    };
    const auto columns =
        carried(classes_.column_factors, point.column_factors, other.classes_.column_factors);
    const auto rows = carried(classes_.row_factors, point.pinned, other.classes_.row_factors);
    if (!columns || !rows) return std::nullopt;
    for (size_t i = 0; i < columns->size(); ++i) {
      const auto [first, last] = other.legal_choices({i});
      if ((*columns)[i] < first || (*columns)[i] > last) return std::nullopt;
    }
    return Point{*columns, *rows, point.saves_dropped};
  }

  // The options among h, F, n (0, 1, 2) for column factors that choose alike (docs/numerics.md).
  // After a mean's subtraction, a stored x ⊙ w cancels against the mean's term; so does a GEMM with
  // a folded weight, which only 16-bit storage hides. In fp16 a stored x ⊙ w may overflow. In 16
  // bits a second norm removes the rounding of h but not that of a folded weight.
  std::pair<int, int> legal_choices(const std::vector<size_t>& factors) const {
    const bool single = options_.storage == DType::f32;
    std::pair<int, int> legal{0, 2};
    const Candidates& found = unchosen_->joint->candidates;
    for (size_t i : factors) {
      const bool row_affine = std::find(found.row_affine.begin(), found.row_affine.end(),
                                        found.column_factors[i]) != found.row_affine.end();
      const bool no_h = row_affine || options_.storage == DType::f16;
      const bool no_fold = single ? row_affine : has_second_norm_[i];
      legal.first = std::max(legal.first, !no_h ? 0 : no_fold ? 2 : 1);
      legal.second = std::min(legal.second, no_h ? 2 : no_fold ? 0 : 1);
    }
    return legal;
  }

  // Flips one class of candidates at a time: similar layers choose alike.
  void descend() {
    const auto classes_of = [](const std::vector<std::string>& keys) {
      std::vector<std::vector<size_t>> classes;  // members of each, in the order of their first
      std::map<std::string, size_t> numbers;
      for (size_t i = 0; i < keys.size(); ++i) {
        const size_t number = numbers.try_emplace(keys[i], classes.size()).first->second;
        if (number == classes.size()) classes.emplace_back();
        classes[number].push_back(i);
      }
      return classes;
    };
    for (bool better = true; better && is_alike_;) {
      better = false;
      for (const std::vector<size_t>& same : classes_of(classes_.column_factors)) {
        const auto [first, last] = legal_choices(same);
        for (int choice = first; choice <= last; ++choice) {
          Point next = best_.point;
          for (size_t i : same) next.column_factors[i] = choice;
          better = keep_better(next) || better;
        }
      }
      for (const std::vector<size_t>& same : classes_of(classes_.row_factors)) {
        // fp16's range cannot hold r ⊙ dz, so row factors stay on the other operand
        // (docs/numerics.md).
        if (options_.storage == DType::f16) break;
        Point next = best_.point;
        for (size_t i : same) next.pinned[i] ^= 1;
        better = keep_better(next) || better;
      }
      // Recomputed operands are of few kinds: save all of them or none.
      if (dropped_ > 0) {
        Point next = best_.point;
        next.saves_dropped = !next.saves_dropped;
        better = keep_better(next) || better;
      }
    }
  }

  bool keep_better(const Point& next) {
    if (next == best_.point) return false;
    const auto known = tried_.find(next);
    if (known != tried_.end() && !cheaper(known->second, best_.alternative)) return false;
    Attempt a = make(next);
    tried_[next] = a.alternative;
    if (!cheaper(a.alternative, best_.alternative)) return false;
    best_ = std::move(a);
    return true;
  }

  bool cheaper(const Alternative& a, const Alternative& b) const {
    const bool by_memory = options_.objective == Objective::memory;
    const auto bytes = [](const Alternative& one) { return one.saved_bytes + one.loop_bytes; };
    const double first = by_memory ? bytes(a) - bytes(b) : a.seconds - b.seconds;
    const double second = by_memory ? a.seconds - b.seconds : bytes(a) - bytes(b);
    const double tiny = 1e-9 * (by_memory ? bytes(b) : b.seconds);
    if (first < -tiny || first > tiny) return first < 0;
    if (second < -1e-12 || second > 1e-12) return second < 0;
    return a.moved_bytes < b.moved_bytes;
  }

  // With costs extrapolated to the full number of layers. Both models are planned concurrently,
  // because they share nothing.
  Attempt make(const Point& point) {
    if (next_ == nullptr || !is_alike_) return make_here(point);
    const std::optional<Point> there = same_in(*next_, point);
    is_alike_ = there.has_value();
    if (!is_alike_) return make_here(point);
    std::future<Alternative> planned =
        std::async(std::launch::async, [&] { return next_->make_here(*there).alternative; });
    Attempt a = make_here(point);
    const Alternative more = planned.get();
    const auto carry_on = [this](double& cost, double with_one_more) {
      cost += layers_beyond_ * (with_one_more - cost);
    };
    carry_on(a.alternative.seconds, more.seconds);
    carry_on(a.alternative.moved_bytes, more.moved_bytes);
    carry_on(a.alternative.saved_bytes, more.saved_bytes);
    carry_on(a.alternative.loop_bytes, more.loop_bytes);
    return a;
  }

  Attempt make_here(const Point& point) {
    ++plans_;
    Attempt a = plan(point, rewritten(point));
    if (a.from->blocks.rows > 0 && a.plan.loops.empty()) {  // a program needs all rows after all
      std::shared_ptr<Rewritten> whole = rewrite(point, false);
      split_into_programs(*whole);
      whole->blocks.why_whole = a.plan.notes.front();
      a = plan(point, std::move(whole));
    }
    const std::string& why_whole = a.from->blocks.why_whole;
    if (!why_whole.empty()) a.plan.notes = {"not in blocks of rows: " + why_whole};
    return a;
  }

  std::shared_ptr<const Rewritten> rewritten(const Point& point) {
    if (best_.from != nullptr && rewrite_alike(point, best_.point)) return best_.from;
    const bool known = unchosen_ != nullptr && rewrite_alike(point, {});
    std::shared_ptr<Rewritten> made = known ? unchosen_ : rewrite(point, options_.loss_rows != 0);
    split_into_programs(*made);
    return made;
  }

  std::shared_ptr<Rewritten> rewrite(const Point& point, bool in_blocks) const {
    Choices choices;
    for (int c : point.column_factors)
      choices.column_factors.push_back(static_cast<ColumnFactor>(c));
    for (int p : point.pinned) choices.pinned.push_back(p != 0);
    choices.means_first = options_.storage == DType::f32;  // see legal_choices
    auto made = std::make_shared<Rewritten>();
    AcceptRowBlocks accept;
    if (in_blocks) {
      accept = [&](const JointGraph& joint) {
        made->blocks = choose_loss_rows(joint, options_);
        return made->blocks.rows > 0;
      };
    }
    made->joint = std::make_shared<const JointGraph>(rewrite_jointly(
        graph_, request_, choices, options_.fuse, options_.sizes, accept, forced_.given, starts_));
    return made;
  }

  void split_into_programs(Rewritten& made) const {
    std::set<size_t> wide;
    for (size_t i = 0; i < request_.gradients.size(); ++i) {
      const GradientRequest& gradient = request_.gradients[i];
      if (size_of(gradient.dtype) > size_of(options_.storage) && !gradient.accumulate)
        wide.insert(i);
    }
    made.materialised = materialise(*made.joint, made.apart, wide);
    made.parts = partition(partition_request(made.materialised.joint));
  }

  // The same rewriting, with one value of each misfit separated from its readers.
  std::shared_ptr<const Rewritten> take_apart(const Rewritten& from,
                                              const std::vector<Misfit>& misfits) const {
    auto made = std::make_shared<Rewritten>();
    made->blocks = from.blocks;
    made->joint = from.joint;
    made->apart = from.apart;
    for (const Misfit& misfit : misfits) {
      for (int id : misfit.apart) {
        const int origin = from.materialised.origin[static_cast<size_t>(id)];
        if (origin >= 0 && made->apart.insert(origin).second) break;
      }
    }
    if (made->apart.size() == from.apart.size())
      throw InternalError("a value fits into no tile: " + misfits[0].problem);
    split_into_programs(*made);
    return made;
  }

  PartitionRequest partition_request(const JointGraph& joint) const {
    PartitionRequest request;
    request.joint = &joint;
    request.sizes = options_.sizes;
    request.storage_bytes = static_cast<double>(size_of(options_.storage));
    request.fuse = options_.fuse;
    return request;
  }

  // The partition with the point's additional saved values.
  Partition saving_parts(const Point& point, const Rewritten& from) const {
    PartitionRequest request = partition_request(from.materialised.joint);
    const std::vector<int>& dropped = from.parts.dropped;
    if (point.saves_dropped) request.also_saved.insert(dropped.begin(), dropped.end());
    return request.also_saved.empty() ? from.parts : partition(request);
  }

  Attempt plan(const Point& point, std::shared_ptr<const Rewritten> from) const {
    CompileOptions options = options_;
    options.loss_rows = from->blocks.rows;
    Attempt a;
    a.point = point;
    for (std::vector<Misfit> misfits;;) {
      a.plan =
          emit(from->materialised.joint, saving_parts(point, *from), request_, options, &misfits);
      if (misfits.empty()) break;
      from = take_apart(*from, misfits);
    }
    a.from = std::move(from);
    a.alternative.choice = describe(point);
    a.alternative.saved_bytes = saved_bytes(a.plan, options_.sizes);
    for (size_t loop = 0; loop < a.plan.loops.size(); ++loop) {
      const double held = row_block_bytes(a.plan, static_cast<int>(loop), options_.sizes).block;
      a.alternative.loop_bytes = std::max(a.alternative.loop_bytes, held);
    }
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
  const Forced& forced_;
  LayerStarts starts_;                   // of recomputed layers
  bool saves_some_layers_ = false;       // some equal layers are not recomputed
  std::shared_ptr<Rewritten> unchosen_;  // without choices; materialised only when a plan needs it
  CandidateClasses classes_;
  std::vector<bool> has_second_norm_;  // by column factor
  Attempt best_;                       // before the search: its starting point
  size_t dropped_ = 0;                 // number of operands that may be saved
  std::map<Point, Alternative> tried_;
  int plans_ = 0;  // plans made of this graph

  Search* next_ = nullptr;  // the same model with one more layer, for extrapolation
  int layers_beyond_ = 0;   // number of layers of the full model beyond this graph's
  bool is_alike_ = true;    // whether both have the same classes
};

// Checks for mistakes of the caller: values of another graph, cotangents that do not fit, gradients
// of values without one, duplicate names.
void check(const Graph& graph, const CompileRequest& request, const PlanChoices& choices) {
  require(
      !choices.layers_on_host || choices.recomputed_layers != 0,
      "inputs of layers are kept in the host's memory (layers_on_host, --layers-on-host) only if "
      "the layers are recomputed: set recomputed_layers (--recompute layer)");
  require(!request.outputs.empty() || !request.gradients.empty(),
          "compile: nothing is asked for; name an output");
  require(request.gradients.empty() || !request.seeds.empty(),
          "compile: gradients need a seeded output");
  std::set<std::string> names;
  const auto check_name = [&](const std::string& what, const std::string& name) {
    require(!name.empty(), "compile: an " + what + " has no name");
    require(graph.find_input(name) < 0 && names.insert(name).second,
            "compile: " + what + " \"" + name + "\": the name is taken; give it another");
  };
  const auto check_value = [&](Value value, const std::string& what) {
    require(value.graph.get() == &graph, "compile: " + what + " is no value of this graph");
  };
  for (const NamedValue& output : request.outputs) {
    check_value(output.value, "output \"" + output.name + "\"");
    check_name("output", output.name);
  }
  for (const SeededOutput& seed : request.seeds) {
    check_value(seed.output, "a seeded output");
    check_value(seed.cotangent, "a cotangent");
    const Shape& wanted = seed.output.shape();
    const Shape& given = seed.cotangent.shape();
    const bool fits = (given.rows == wanted.rows || given.rows.is(1)) &&
                      (given.cols == wanted.cols || given.cols.is(1));
    require(fits, "compile: the cotangent " + given.text() + " of a seeded output " +
                      wanted.text() + " does not broadcast to it");
  }
  for (const GradientRequest& gradient : request.gradients) {
    const std::string what = "gradient \"" + gradient.name + "\"";
    check_value(gradient.input, "the input of " + what);
    check_name("gradient", gradient.name);
    const Node& node = graph.node(gradient.input.id);
    require(node.op == Op::input,
            "compile: " + what + " is of a value that is computed, not of an input or parameter");
    require(node.kind != InputKind::table && is_floating(node.dtype),
            "compile: " + what + " is of \"" + node.name + "\", which is " +
                (is_floating(node.dtype) ? "a table, and tables are constants"
                                         : std::string(name_of(node.dtype))) +
                ": it has no gradient. Leave it out, or make it an input or a parameter of a "
                "floating type");
    require(is_floating(gradient.dtype),
            "compile: " + what + " cannot be " + std::string(name_of(gradient.dtype)));
  }
}

}  // namespace

Compiled compile(const Graph& graph, const CompileRequest& request, const CompileOptions& options) {
  return compile(graph, request, options, {});
}

Compiled compile(const Graph& graph, const CompileRequest& request, const CompileOptions& options,
                 const Forced& forced, SearchWork* work) {
  check(graph, request, options);
  excepted_of(graph, request, options);
  SearchWork unread;
  return Search(graph, request, options, forced).run(work == nullptr ? unread : *work);
}

}  // namespace coda
