// SPDX-License-Identifier: Apache-2.0
// Writes steps recursively from effects to loads.
#include "plan/write/program_writer.h"

#include <algorithm>
#include <cmath>

#include "base/columns.h"
#include "coda/error.h"
#include "program/problem.h"
#include "program/step_table.h"

namespace coda {

namespace {

TensorKind partial_kind(const Node& reduction) {
  const bool columns = reduction.op == Op::col_sum || reduction.op == Op::col_reduce;
  return columns ? TensorKind::column_partial : TensorKind::row_partial;
}

}  // namespace

ProgramWriter::ProgramWriter(const JointGraph& joint, const Partition& partition,
                             TensorNames& names, std::string name, PlanPoint at, bool backward)
    : joint_(joint),
      graph_(*joint.graph),
      partition_(partition),
      names_(names),
      at_(at),
      backward_(backward) {
  program_.name = std::move(name);
}

int ProgramWriter::push(Step step) {
  program_.steps.push_back(std::move(step));
  return static_cast<int>(program_.steps.size()) - 1;
}

int ProgramWriter::tensor(const std::string& name) {
  auto [entry, is_new] = tensors_.try_emplace(name, static_cast<int>(program_.tensors.size()));
  if (is_new) program_.tensors.push_back(names_.decl(name));
  return entry->second;
}

int ProgramWriter::constant(double number) {
  auto known = constants_.find(number);
  if (known != constants_.end()) return known->second;
  return constants_[number] = push(program::constant(number));
}

int ProgramWriter::elementwise_step(Elementwise fn, std::vector<int> operands, const Shape& shape) {
  return push(program::applied(fn, std::move(operands), shape));
}

// ---- Values of tiles.

bool ProgramWriter::is_in_memory(int id) const {
  if (is_source(graph_, id)) return true;
  if (graph_.node(id).op == Op::concat_columns) {
    const auto& parts = graph_.node(id).operands;
    return std::all_of(parts.begin(), parts.end(), [this](int part) { return is_in_memory(part); });
  }
  const bool forward = joint_.forward[static_cast<size_t>(id)];
  if (backward_ && forward && partition_.saved.contains(id)) return true;
  const auto& stored = backward_ ? partition_.stored_backward : partition_.stored_forward;
  auto found = stored.find(id);
  return found != stored.end() && found->second < at_;
}

int ProgramWriter::value(int id) {
  auto known = steps_.find(id);
  if (known != steps_.end()) return known->second;
  const Node& n = graph_.node(id);
  const int step = n.shape.is_tensor() ? compute(id) : vector_value(id);
  return steps_[id] = step;
}

int ProgramWriter::compute(int id) {
  const Node& n = graph_.node(id);
  const bool own_product = n.op == Op::matmul && at_.level == 0 &&
                           partition_.order.unit_of[static_cast<size_t>(id)] == at_.slot;
  if (own_product) return gemm(n);
  const bool view = n.op == Op::slice_columns && !is_source(graph_, id);
  if (view || is_in_memory(id)) return load(id);
  if (backward_ && partition_.stand_in.contains(id)) return through_inverse(id);
  if (n.op == Op::elementwise) return elementwise_value(n, [this](int o) { return value(o); });
  Step step{columns_work(id), n.shape};
  for (int operand : n.operands) step.operands.push_back(value(operand));
  return push(step);
}

// The step for an operation that rearranges columns.
StepWork ProgramWriter::columns_work(int id) const {
  const Node& n = graph_.node(id);
  switch (n.op) {
    case Op::split_pair: return steps::SplitPair{n.dim, n.which};
    case Op::merge_pairs: return steps::MergePairs{n.dim};
    case Op::group_sum: return steps::ReduceGroup{n.dim};
    case Op::group_repeat: return steps::RepeatGroup{n.dim};
    default:
      throw InternalError(
          "a program needs a value that is neither in memory nor tile-local: node " +
          std::to_string(id) + " of program " + program_.name);
  }
}

int ProgramWriter::gemm(const Node& n) {
  steps::Gemm product;
  for (size_t s = 0; s < n.transposes.size(); ++s) {
    auto operand = [&](size_t i) {
      const TensorRef ref = names_.read(n.operands[2 * s + i], backward_);
      invariant(ref.repeat.is(1) && ref.row_index < 0,
                "a product's operand is a gathered or repeated table");
      return tensor(ref.name);
    };
    GemmSegment segment;
    segment.a = operand(0);
    segment.b = operand(1);
    segment.transpose_a = n.transposes[s].a;
    segment.transpose_b = n.transposes[s].b;
    product.segments.push_back(segment);
  }
  return push({std::move(product), n.shape});
}

int ProgramWriter::load(int id) {
  const TensorRef ref = names_.read(id, backward_);
  steps::LoadTile load{.tensor = tensor(ref.name), .repeat = ref.repeat};
  if (ref.row_index >= 0) load.row_index = tensor(names_.vector(ref.row_index));
  return push({load, graph_.node(id).shape});
}

// x from a saved y = x + v or x ⊙ v, or y from a saved x. Chains of links meet at a common member.
int ProgramWriter::through_inverse(int id) {
  const int saved = partition_.stand_in.at(id);
  // Down from the saved value to the common member, then up to the needed value.
  auto link_of = [this](int v) { return partition_.links[static_cast<size_t>(v)]; };
  auto chain = [&link_of](int v) {
    std::vector<int> links{v};
    while (link_of(v).operand >= 0) links.push_back(v = link_of(v).operand);
    return links;
  };
  const std::vector<int> down = chain(saved);
  const std::vector<int> up = chain(id);
  std::map<int, size_t> index;
  for (size_t i = 0; i < down.size(); ++i) index[down[i]] = i;
  size_t meet = 0;
  while (meet < up.size() && !index.contains(up[meet])) ++meet;
  invariant(meet < up.size(), "a stand-in is not linked");
  int step = value(saved);
  for (size_t i = 0; i < index.at(up[meet]); ++i) {
    const InverseLink link = link_of(down[i]);
    const Node& by = graph_.node(link.vector);
    const Shape& shape = graph_.node(down[i]).shape;
    step = link.additive ? elementwise_step(Elementwise::sub, {step, value(link.vector)}, shape)
           : by.op == Op::constant
               ? elementwise_step(Elementwise::mul, {step, constant(1 / by.number)}, shape)
               : elementwise_step(Elementwise::div, {step, value(link.vector)}, shape);
  }
  for (size_t i = meet; i-- > 0;) {
    const InverseLink link = link_of(up[i]);
    step = elementwise_step(link.additive ? Elementwise::add : Elementwise::mul,
                            {step, value(link.vector)}, graph_.node(up[i]).shape);
  }
  return step;
}

// Writes x + (-1)y as x - y. A log-sum-exp is a pair, so x + (max + log Σ) becomes (x + max) + log
// Σ, so that cancellation happens before the small term is added.
int ProgramWriter::elementwise_value(const Node& n, const std::function<int(int)>& operand) {
  if (is_made_here_ || graph_.node(n.operands[0]).op == Op::group_sum) {
    if (const double by = divisor_of(n); by != 0)
      return elementwise_step(Elementwise::div, {operand(n.operands[0]), constant(by)}, n.shape);
  }
  // Loaded values were stored as they are, and values through an inverse are not computed from
  // their operands, which the program may lack.
  auto loaded = [this](int id) {
    return is_in_memory(id) || (is_made_here_ && !is_made_here_(id)) ||
           (backward_ && partition_.stand_in.contains(id));
  };
  auto negated = [&](int id) {
    const Node& m = graph_.node(id);
    const bool minus = !loaded(id) && m.op == Op::elementwise && m.fn == Elementwise::mul &&
                       graph_.node(m.operands[1]).op == Op::constant &&
                       graph_.node(m.operands[1]).number == -1;
    return minus ? m.operands[0] : -1;
  };
  if (n.fn == Elementwise::add) {
    for (size_t i : {1U, 0U}) {
      const int other = n.operands[1 - i];
      const int minus = negated(n.operands[i]);
      const int lse = minus >= 0 ? minus : n.operands[i];
      if (is_pair(graph_.node(lse)) && !is_pair(graph_.node(other))) {
        const Elementwise fn = minus >= 0 ? Elementwise::sub : Elementwise::add;
        const int first = elementwise_step(fn, {operand(other), load_vector(lse, 0)}, n.shape);
        return elementwise_step(fn, {first, load_vector(lse, 1)}, n.shape);
      }
    }
    for (size_t i : {1U, 0U}) {
      if (steps_.contains(n.operands[i])) continue;
      const int minus = negated(n.operands[i]);
      const Node& product = graph_.node(n.operands[i]);
      if (minus >= 0) {
        return elementwise_step(Elementwise::sub, {operand(n.operands[1 - i]), operand(minus)},
                                n.shape);
      }
      for (size_t j : {0U, 1U}) {  // x + a (-b)
        if (product.op != Op::elementwise || product.fn != Elementwise::mul ||
            loaded(n.operands[i]))
          break;
        const int factor = negated(product.operands[j]);
        if (factor < 0) continue;
        const int unsigned_product = elementwise_step(
            Elementwise::mul, {operand(product.operands[1 - j]), operand(factor)}, product.shape);
        return elementwise_step(Elementwise::sub, {operand(n.operands[1 - i]), unsigned_product},
                                n.shape);
      }
    }
  }
  std::vector<int> operands;
  for (int o : n.operands) operands.push_back(operand(o));
  return elementwise_step(n.fn, operands, n.shape);
}

// ---- Vectors.

int ProgramWriter::load_vector(int id, int result) {
  auto known = vectors_.find({id, result});
  if (known != vectors_.end()) return known->second;
  const Node& n = graph_.node(id);
  if (is_made_here_ && is_made_here_(id)) {
    invariant(is_pair(n), "only a reduction that is two numbers is loaded where it is made");
    return vectors_[{id, result}] = push(combine(id, result));
  }
  const bool given = n.op == Op::input || n.op == Op::result || is_source(graph_, id) ||
                     (n.op == Op::transpose && is_source(graph_, n.operands[0]));
  if (!given) loaded_vectors_.insert(id);
  Step load = program::vector_load(tensor(names_.vector(id, result)), n.shape);
  if (n.op == Op::repeat_columns) *program::fields_of(load).repeat = repeat_of(id);
  return vectors_[{id, result}] = push(std::move(load));
}

// How often a vector in memory is repeated along columns.
Dim ProgramWriter::repeat_of(int id) const {
  Dim repeat = 1;
  for (; graph_.node(id).op == Op::repeat_columns; id = graph_.node(id).operands[0])
    repeat = *product(repeat, graph_.node(id).repeat);  // its columns have a size
  return repeat;
}

int ProgramWriter::vector_value(int id) {
  const Node& n = graph_.node(id);
  if (n.op == Op::constant) return constant(n.number);
  if (n.op == Op::column_index || n.op == Op::ones) {
    const int index = push({steps::ColumnIndex{}, n.shape});
    if (n.op == Op::column_index) return index;
    const int zero = elementwise_step(Elementwise::mul, {index, constant(0)}, n.shape);
    return elementwise_step(Elementwise::add, {zero, constant(1)}, n.shape);
  }
  if (is_pair(n)) {
    return elementwise_step(Elementwise::add, {load_vector(id, 0), load_vector(id, 1)}, n.shape);
  }
  return is_made_here_ ? finalizer_value(id) : load_vector(id, -1);
}

Step ProgramWriter::combine(int id, int result) {
  const int with = names_.reduced_with(id);
  const Node& n = graph_.node(with);
  const int of = tensor(names_.partial(with, n.reduction, {}, partial_kind(n)));
  return {steps::Combine{of, n.reduction, result}, n.shape};
}

// The integer d if the node multiplies by 1 / d, else 0. The caller then divides by d. This matters
// for the mean of a row or of a head, which is sum * (1 / columns): fp32 cannot represent 1 / 768
// exactly, so the multiplication would shift all means in the same direction (docs/numerics.md).
double ProgramWriter::divisor_of(const Node& n) const {
  if (n.fn != Elementwise::mul || graph_.node(n.operands[1]).op != Op::constant) return 0;
  constexpr double kMost = 1 << 24;  // integers up to here are fp32 numbers
  const double number = graph_.node(n.operands[1]).number;
  const double by = number == 0 ? 0 : std::round(1 / number);
  int exponent = 0;
  const bool is_power_of_two = std::frexp(std::abs(by), &exponent) == 0.5;
  const bool divides = std::abs(by) <= kMost && std::abs(by * number - 1) < 1e-12;
  return divides && !is_power_of_two ? by : 0;
}

int ProgramWriter::finalizer_value(int id) {
  const Node& n = graph_.node(id);
  if (!is_made_here_(id)) return load_vector(id, -1);
  auto operand = [this](int o) { return value(o); };
  const bool of_tensor = !n.operands.empty() && graph_.node(n.operands[0]).shape.is_tensor();
  if (of_tensor && n.op != Op::select_column) {
    const Step step = combine(id, info(n.reduction).value);
    const std::string second = names_.second_members(names_.partial(id, n.reduction, {}, {}));
    if (!second.empty()) return merged_squares(step, tensor(second), n);
    return push(step);
  }
  switch (n.op) {
    case Op::reciprocal_dim:
      return elementwise_step(Elementwise::recip, {size_value(n.dim)}, {1, 1});
    case Op::elementwise: return elementwise_value(n, operand);
    case Op::transpose: return push({steps::TransposeVector{}, n.shape, {operand(n.operands[0])}});
    case Op::row_sum:
    case Op::col_sum: return push({steps::ReduceVector{}, n.shape, {operand(n.operands[0])}});
    default: throw InternalError("a finalizer lacks an operation for node " + std::to_string(id));
  }
}

int ProgramWriter::size_value(const Dim& dim) {
  if (dim.is_constant()) return constant(static_cast<double>(dim.constant()));
  return push({steps::Size{dim}, {1, 1}});
}

// M2 of rows whose pairs had their members reduced separately, N/2 values each: the sum of both M2,
// plus N/4 (difference of the means)².
int ProgramWriter::merged_squares(const Step& combine, int second, const Node& n) {
  auto lane = [&](int tensor, int which) {
    return push({steps::Combine{tensor, combine.partial(), which}, n.shape});
  };
  auto apply = [&](Elementwise fn, int a, int b) { return elementwise_step(fn, {a, b}, n.shape); };
  const int first = combine.tensor();
  const int difference = apply(Elementwise::sub, lane(first, 0), lane(second, 0));
  const int square = apply(Elementwise::mul, difference, difference);
  const int width = size_value(graph_.node(n.operands[0]).shape.cols);
  const int quarter = elementwise_step(Elementwise::mul, {width, constant(0.25)}, {1, 1});
  return apply(Elementwise::add, apply(Elementwise::add, lane(first, 1), lane(second, 1)),
               apply(Elementwise::mul, square, quarter));
}

void ProgramWriter::store_vector(int id, const std::function<bool(int)>& is_made_here,
                                 const std::function<bool(int)>& is_read_elsewhere) {
  is_made_here_ = is_made_here;
  is_read_elsewhere_ = is_read_elsewhere;
  auto store = [this](int step, const std::string& name, const Shape& shape) {
    push(program::vector_store(tensor(name), step, shape));
  };
  const Node& n = graph_.node(id);
  if (is_pair(n)) {
    const bool is_callers = names_.is_written_by_caller_name(id);
    for (int result = 0; result < 2 && (!is_callers || is_read_elsewhere_(id)); ++result)
      store(load_vector(id, result), names_.vector(id, result), n.shape);
    if (!is_callers) return;
  }
  const int step = value(id);
  const std::string sum = names_.added_to(id);
  if (!sum.empty()) {
    const int before = push(program::vector_load(tensor(sum), n.shape));
    store(elementwise_step(Elementwise::add, {before, step}, n.shape),
          names_.accumulates(id) ? sum : names_.vector(id), n.shape);
  }
  if (sum.empty() || (names_.accumulates(id) && is_read_elsewhere_(id)))
    store(step, names_.vector(id), n.shape);
}

// ---- Effects.

// Whether id = (a value that this program has stored) ⊙ vectors.
bool ProgramWriter::scales_stored(int id) const {
  const Node& n = graph_.node(id);
  if (n.op != Op::elementwise || n.fn != Elementwise::mul) return false;
  const int of = graph_.node(n.operands[0]).shape.is_tensor() ? n.operands[0] : n.operands[1];
  const int by = of == n.operands[0] ? n.operands[1] : n.operands[0];
  if (!graph_.node(by).shape.is_vector()) return false;
  return as_stored_.contains(of) || scales_stored(of);
}

void ProgramWriter::store_tile(int id) {
  const Node& n = graph_.node(id);
  const std::string name = names_.written(id, backward_);
  // x ⊙ w uses the stored x: then the norm's r, which is computed from that x, cancels its
  // rounding.
  int step = scales_stored(id) ? rounded(id) : value(id);
  const std::string old_name = backward_ ? names_.added_to(id) : "";
  if (!old_name.empty()) {
    const int before = push(program::tile_load(tensor(old_name), n.shape));
    step = elementwise_step(Elementwise::add, {before, step}, n.shape);
  }
  const DType type = names_.decl(name).dtype;
  if (type != DType::f32 && names_.gradient_of(id) == nullptr) {
    step = push({steps::AsStored{type}, n.shape, {step}});
    as_stored_[id] = step;
  }
  push(program::tile_store(tensor(name), step, n.shape));
}

bool ProgramWriter::stores_below(int id) {
  if (as_stored_.contains(id)) return true;
  auto known = stores_below_.find(id);
  if (known != stores_below_.end()) return known->second;
  bool found = false;
  const Node& n = graph_.node(id);
  if (n.shape.is_tensor() && n.op != Op::matmul && !is_in_memory(id)) {
    for (int operand : n.operands) found = found || stores_below(operand);
  }
  return stores_below_[id] = found;
}

// The value as a later program would read it; reductions use this one (docs/numerics.md).
int ProgramWriter::rounded(int id) {
  if (as_stored_.contains(id)) return as_stored_.at(id);
  if (!stores_below(id)) return value(id);
  auto known = rounded_.find(id);
  if (known != rounded_.end()) return known->second;
  const Node& n = graph_.node(id);
  int step = -1;
  if (n.op == Op::elementwise) {
    step = elementwise_value(
        n, [this](int o) { return graph_.node(o).shape.is_tensor() ? rounded(o) : value(o); });
  } else {
    Step s{columns_work(id), n.shape};
    for (int operand : n.operands) s.operands.push_back(rounded(operand));
    step = push(s);
  }
  return rounded_[id] = step;
}

void ProgramWriter::reduce(int id) {
  const Node& n = graph_.node(id);
  const int operand = rounded(n.operands[0]);
  if (n.op == Op::select_column) {
    const int selected = push({steps::SelectColumn{}, n.shape, {operand, value(n.operands[1])}});
    push(program::vector_store(tensor(names_.vector(id)), selected, n.shape));
    return;
  }
  const Shape& shape = graph_.node(n.operands[0]).shape;
  const int to = tensor(names_.partial(id, n.reduction, shape, partial_kind(n)));
  if (partial_kind(n) == TensorKind::column_partial) {
    push({steps::ColumnPartial{to, n.reduction}, shape, {operand}});
  } else {
    push({steps::RowPartial{to, n.reduction}, shape, {operand}});
  }
}

// A partial covers a known number of values only if they are one plane of the tile. If the number
// is needed, the members of pairs are reduced separately.
void ProgramWriter::reduce_members_apart(const program::TileMap& map) {
  std::vector<Step> steps;
  std::swap(steps, program_.steps);
  std::vector<int> now(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    Step& step = steps[i];
    const bool apart = program::is_row_partial(step) && info(step.partial()).needs_count &&
                       !map.pairing[static_cast<size_t>(step.operands[0])].is(0);
    for (int& operand : step.operands) operand = now[static_cast<size_t>(operand)];
    if (!apart) {
      now[i] = push(std::move(step));
      continue;
    }
    const std::string partial = program_.tensors[static_cast<size_t>(step.tensor())].name;
    for (int which : {0, 1}) {
      const Shape& half = map.spaces[static_cast<size_t>(map.space[i])].shape;
      const int member = push({steps::SplitPair{map.pairing[i], which}, half, step.operands});
      const int to = which == 0 ? step.tensor() : tensor(names_.reduce_members_apart(partial));
      push({steps::RowPartial{to, step.partial()}, half, {member}});
    }
  }
}

// The value for which a step was written: the first known value at that step or later.
int ProgramWriter::node_of(int step) const {
  const Step& s = program_.steps[static_cast<size_t>(step)];
  if (program::is_effect(s)) return node_of(s.operands[0]);
  int best = -1;
  int best_step = -1;
  for (const auto* known : {&steps_, &rounded_, &as_stored_}) {
    for (const auto& [id, at] : *known) {
      if (at < step || (best >= 0 && at >= best_step)) continue;
      best = id;
      best_step = at;
    }
  }
  return best;
}

std::optional<Misfit> ProgramWriter::misfit() const {
  int at = -1;
  Misfit found;
  try {
    program::map_tiles(program_);
    return {};
  } catch (const program::Problem& problem) {
    at = problem.step;
    found.problem = program_.name + ": " + problem.message;
  }
  const auto computed = [this](int id) {
    auto step = steps_.find(id);
    return graph_.node(id).shape.is_tensor() && step != steps_.end() &&
           !program::is_tile_load(program_.steps[static_cast<size_t>(step->second)]);
  };
  const auto list = [&](int id) {
    if (computed(id)) found.apart.push_back(id);
  };
  const int node = node_of(at);
  if (node >= 0) {
    const Node& n = graph_.node(node);
    const bool widens = n.op == Op::merge_pairs || n.op == Op::group_repeat;
    if (widens) list(node);
    for (int operand : n.operands) list(operand);
    if (!widens) list(node);
  }
  for (auto entry = steps_.rbegin(); entry != steps_.rend(); ++entry) list(entry->first);
  return found;
}

bool ProgramWriter::has_product() const { return program::has_product(program_); }

Program ProgramWriter::finish() {
  program::TileMap map = program::map_tiles(program_);
  const bool counts =
      std::any_of(program_.steps.begin(), program_.steps.end(), [](const Step& step) {
        return program::is_row_partial(step) && info(step.partial()).needs_count;
      });
  if (counts) {
    reduce_members_apart(map);
    map = program::map_tiles(program_);
  }
  // Row partials count base columns, which are known only when all of the space's values are.
  for (const TileSpace& space : map.spaces) {
    for (int i : space.steps) {
      const Step& step = program_.steps[static_cast<size_t>(i)];
      if (!program::is_row_partial(step)) continue;
      TensorDecl& decl = program_.tensors[static_cast<size_t>(step.tensor())];
      decl.shape = space.shape;
      names_.set_partial_shape(decl.name, space.shape);
    }
  }
  return std::move(program_);
}

}  // namespace coda
