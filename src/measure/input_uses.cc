// SPDX-License-Identifier: Apache-2.0
// Translates programs and graphs to a list of terms, ordered from inputs to results. Then visits
// the terms from results to inputs and passes requirements to the operands: for example, the
// operand of a logarithm must be positive.
#include "measure/input_uses.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "program/step_table.h"

namespace coda::measure {
namespace {

struct Term {
  enum class Kind : uint8_t {
    passes,  // moves, selects or rounds its operands
    input,
    number,
    columns,  // 0, 1, ..., `dim` - 1
    elementwise,
    product,    // a matrix product
    sum,        // a sum of `dim` values
    selection,  // the element of operand 0 in the column that operand 1 gives, below `dim`
    gather,     // the row of operand 0 that operand 1 gives, below `dim`
    unknown,
  } kind = Kind::unknown;
  std::vector<int> operands{};
  Elementwise fn = Elementwise::add;
  double value = 0;  // for a number
  Dim dim = 1;
  std::string name{};  // for an input
  bool is_scalar = false;
  bool is_magnitude = false;
};
using Terms = std::vector<Term>;
using Kind = Term::Kind;

// ---- Terms of programs ----

class ProgramTerms {
 public:
  explicit ProgramTerms(std::span<const Program> programs) {
    for (const Program& program : programs) add(program);
  }
  Terms terms;

 private:
  int push(Term term) {
    terms.push_back(std::move(term));
    return static_cast<int>(terms.size()) - 1;
  }

  int tensor(const Program& program, int index) {
    const TensorDecl& decl = program.tensors[static_cast<size_t>(index)];
    const auto known = tensors_.find(decl.name);
    if (known != tensors_.end()) return known->second;
    return tensors_[decl.name] =
               push({.kind = Kind::input, .name = decl.name, .is_scalar = decl.shape.is_scalar()});
  }

  void add(const Program& program) {
    std::vector<int> values;
    std::map<std::string, int> stored;
    for (const Step& s : program.steps) {
      std::vector<int> operands;
      for (const int o : s.operands) operands.push_back(values[static_cast<size_t>(o)]);
      values.push_back(term_of(program, s, operands));
      if (!program::is_effect(s)) continue;
      if (program::is_maximum(s))
        terms[static_cast<size_t>(tensor(program, s.tensor()))].is_magnitude = true;
      stored[program.tensors[static_cast<size_t>(s.tensor())].name] = values.back();
    }
    for (const auto& [name, term] : stored) tensors_[name] = term;
  }

  int term_of(const Program& program, const Step& s, const std::vector<int>& operands) {
    const bool is_sum = s.partial() == PartialKind::sum || s.partial() == PartialKind::mean_m2;
    if (program::is_product(s)) {
      Term term{.kind = Kind::product};
      for (const GemmSegment& segment : s.segments()) {
        for (const int t : segment.tensors()) {
          if (t >= 0) term.operands.push_back(tensor(program, t));
        }
      }
      return push(std::move(term));
    }
    if (program::is_tile_load(s) && s.row_index() >= 0) {
      const int table = tensor(program, s.tensor());
      return push({.kind = Kind::gather,
                   .operands = {table, tensor(program, s.row_index())},
                   .dim = program.tensors[static_cast<size_t>(s.tensor())].shape.rows});
    }
    if (program::is_tile_load(s) || program::is_vector_load(s)) return tensor(program, s.tensor());
    if (program::is_constant(s)) return push({.kind = Kind::number, .value = s.number()});
    if (program::is_size(s)) return push({.kind = Kind::number, .value = 2});
    if (program::is_column_index(s)) return push({.kind = Kind::columns, .dim = s.shape.cols});
    if (program::is_elementwise(s))
      return push({.kind = Kind::elementwise, .operands = operands, .fn = s.op()});
    if (program::is_selection(s)) {
      return push({.kind = Kind::selection,
                   .operands = operands,
                   .dim = program.steps[static_cast<size_t>(s.operands[0])].shape.cols});
    }
    if (program::is_combination(s)) {
      const Shape& of = program.tensors[static_cast<size_t>(s.tensor())].shape;
      return push({.kind = is_sum ? Kind::sum : Kind::passes,
                   .operands = {tensor(program, s.tensor())},
                   .dim = s.shape.is_per_row() ? of.cols : of.rows});
    }
    if (program::is_row_partial(s) || program::is_column_partial(s))
      return push({.kind = s.partial() == PartialKind::sum ? Kind::passes : Kind::unknown,
                   .operands = operands});
    if (program::sums_groups(s) && !program::takes_largest_of_groups(s))
      return push({.kind = Kind::sum, .operands = operands, .dim = s.group()});
    if (s.kind() == StepKind::reduce_vector) {
      const Shape& of = program.steps[static_cast<size_t>(s.operands[0])].shape;
      return push(
          {.kind = Kind::sum, .operands = operands, .dim = of.is_per_row() ? of.rows : of.cols});
    }
    return push({.kind = Kind::passes, .operands = operands});
  }

  std::map<std::string, int> tensors_;  // the latest value of each tensor
};

// ---- Terms of graphs ----

Term term_of(const NamedGraph& named, const Node& n) {
  const auto shape_of = [&](size_t operand) -> const Shape& {
    return named.graph.node(n.operands[operand]).shape;
  };
  Term term{.operands = n.operands, .is_scalar = n.shape.is_scalar()};
  switch (n.op) {
    case Op::input: term.kind = Kind::input, term.name = n.name; break;
    case Op::constant: term.kind = Kind::number, term.value = n.number; break;
    case Op::reciprocal_dim:
    case Op::ones: term.kind = Kind::number, term.value = 1; break;
    case Op::column_index: term.kind = Kind::columns, term.dim = n.shape.cols; break;
    case Op::elementwise: term.kind = Kind::elementwise, term.fn = n.fn; break;
    case Op::matmul: term.kind = Kind::product; break;
    case Op::row_sum: term.kind = Kind::sum, term.dim = shape_of(0).cols; break;
    case Op::col_sum: term.kind = Kind::sum, term.dim = shape_of(0).rows; break;
    case Op::group_sum: term.kind = Kind::sum, term.dim = n.dim; break;
    case Op::select_column: term.kind = Kind::selection, term.dim = shape_of(0).cols; break;
    case Op::gather_rows: term.kind = Kind::gather, term.dim = shape_of(0).rows; break;
    case Op::opaque:
      if (n.name == "embedding") term.kind = Kind::gather, term.dim = shape_of(0).rows;
      break;
    case Op::row_reduce:
    case Op::col_reduce: break;
    default: term.kind = Kind::passes; break;
  }
  return term;
}

// ---- From results to inputs ----

class UseFinder {
 public:
  explicit UseFinder(Terms terms) : terms_(std::move(terms)), uses_(terms_.size()) {
    for (const Term& t : terms_) {
      columns_.push_back(columns_of(t));
      summed_.push_back(summed_in(t));
    }
  }

  std::map<std::string, InputUse> find() {
    std::map<std::string, InputUse> found;
    for (size_t i = terms_.size(); i-- > 0;) {
      const Term& term = terms_[i];
      if (term.kind != Kind::input) {
        visit(term, uses_[i]);
        continue;
      }
      if (term.is_magnitude) demand(static_cast<int>(i), Use::magnitude);
      found[term.name] = uses_[i];
    }
    return found;
  }

 private:
  const Term& term(int i) const { return terms_[static_cast<size_t>(i)]; }
  bool is_number(int i) const { return term(i).kind == Kind::number; }
  bool applies(int i, Elementwise fn) const {
    return term(i).kind == Kind::elementwise && term(i).fn == fn;
  }

  InputUse& demand(int i, Use use) {
    InputUse& own = uses_[static_cast<size_t>(i)];
    own.use = std::max(own.use, use);
    return own;
  }
  void demand_divisor(int i) { demand(i, Use::divisor).is_divisor = true; }
  void demand_place(int i, const Dim& count, bool is_strict) {
    demand(i, Use::place).limits.push_back({count, is_strict});
  }
  void pass(int i, const InputUse& use) {
    InputUse& own = demand(i, use.use);
    own.is_divisor = own.is_divisor || use.is_divisor;
    if (use.use == Use::count || use.use == Use::reciprocal_count) own.of = use.of;
    own.limits.insert(own.limits.end(), use.limits.begin(), use.limits.end());
  }
  void pass_to_all(const Term& t, const InputUse& use) {
    for (const int o : t.operands) pass(o, use);
  }

  // If a term is computed only from column indices and numbers: how many columns there are.
  std::optional<Dim> columns_of(const Term& t) const {
    if (t.kind == Kind::columns) return t.dim;
    if (t.kind != Kind::elementwise && t.kind != Kind::passes) return std::nullopt;
    std::optional<Dim> found;
    for (const int o : t.operands) {
      if (is_number(o)) continue;
      found = columns_[static_cast<size_t>(o)];
      if (!found) return std::nullopt;
    }
    return found;
  }
  // If a factor of a term is a sum: how many values the sum has.
  std::optional<Dim> summed_in(const Term& t) const {
    if (t.kind == Kind::sum) return t.dim;
    const bool has_factors =
        t.kind == Kind::passes ||
        (t.kind == Kind::elementwise && (t.fn == Elementwise::mul || t.fn == Elementwise::neg));
    if (!has_factors) return std::nullopt;
    for (const int o : t.operands) {
      if (const auto& found = summed_[static_cast<size_t>(o)]) return found;
    }
    return std::nullopt;
  }
  // A scalar input that divides or multiplies a sum is taken as the number of summed values, or as
  // its reciprocal.
  void find_count(int scalar, int beside, Use use) {
    const Term& t = term(scalar);
    if (t.kind == Kind::elementwise && t.fn == Elementwise::recip)
      return find_count(t.operands[0], beside, Use::count);
    const auto& of = summed_[static_cast<size_t>(beside)];
    if (of && t.kind == Kind::input && t.is_scalar) demand(scalar, use).of = *of;
  }

  void visit(const Term& t, const InputUse& use) {
    switch (t.kind) {
      case Kind::elementwise: return visit_elementwise(t, use);
      case Kind::selection:
      case Kind::gather:
        pass(t.operands[0], use);
        return demand_place(t.operands[1], t.dim, t.kind == Kind::gather);
      case Kind::product:
      case Kind::sum:
        if (use.use == Use::positive || use.use == Use::moment) pass_to_all(t, use);
        return;
      case Kind::passes: return pass_to_all(t, use);
      default: return;
    }
  }

  // A tensor that is only used as a mask is a condition of where(), a factor, subtracted from 1, or
  // compared with 0 or 1. Any other use, for example q / 255, makes the tensor a quantity.
  void find_quantities(const Term& t) {
    constexpr double kLarge = 16;
    for (size_t i = 0; i < t.operands.size(); ++i) {
      InputUse& own = uses_[static_cast<size_t>(t.operands[i])];
      const int other = t.operands[t.operands.size() - 1 - i];
      const double value = is_number(other) ? term(other).value : std::nan("");
      switch (t.fn) {
        case Elementwise::select:
        case Elementwise::neg: break;
        case Elementwise::mul:
          if (std::abs(value) <= 1 / kLarge) own.is_quantity = true;
          break;
        case Elementwise::div:
          if (i == 1 || std::abs(value) >= kLarge) own.is_quantity = true;
          break;
        case Elementwise::add:
        case Elementwise::sub:
          if (std::abs(value) != 1) own.is_quantity = true;
          break;
        case Elementwise::equal:
        case Elementwise::not_equal:
        case Elementwise::less:
        case Elementwise::less_equal:
          if (!(value >= 0 && value <= 1)) own.is_quantity = true;
          break;
        default: own.is_quantity = true;
      }
    }
  }

  void visit_elementwise(const Term& t, const InputUse& use) {
    find_quantities(t);
    const bool is_positive = use.use == Use::positive || use.use == Use::moment;
    const bool is_whole = use.use == Use::seed || use.use == Use::place;
    const int a = t.operands[0];
    const int b = t.operands.size() > 1 ? t.operands[1] : a;
    switch (t.fn) {
      case Elementwise::random:
        for (const int o : t.operands) demand(o, Use::seed);
        return;
      case Elementwise::stochastic_bf16: demand(b, Use::probability); return pass(a, use);
      case Elementwise::sqrt:
      case Elementwise::rsqrt:
      case Elementwise::log: demand(a, Use::positive); return;
      case Elementwise::recip:
        demand_divisor(a);
        if (is_positive) pass(a, use);
        return;
      case Elementwise::div:
        find_count(b, a, Use::count);
        demand_divisor(b);
        if (is_positive) pass_to_all(t, use);
        return;
      case Elementwise::mul:
        find_count(b, a, Use::reciprocal_count);
        find_count(a, b, Use::reciprocal_count);
        if (a != b && (use.use == Use::probability || (!is_negative(a) && !is_negative(b))))
          pass_to_all(t, use);
        return;
      case Elementwise::add:
        if (is_positive && (is_negated(a) || is_negated(b))) {
          const int left = is_negated(a) ? b : a;
          if (!is_number(left)) demand(left, Use::moment);
          if (is_number(left) && term(left).value == 1)
            pass_to_all(term(is_negated(a) ? a : b), {.use = Use::probability});
        } else if (is_positive || is_whole || is_number(a) || is_number(b)) {
          pass_to_all(t, use);
        }
        return;
      case Elementwise::sub: return visit_difference(a, b, use, is_positive, is_whole);
      case Elementwise::max:
        if (use.is_divisor && (is_above_0(a) || is_above_0(b)))
          return pass_clamped(is_number(a) ? b : a, use);
        return pass_to_all(t, use);
      case Elementwise::min: return pass_to_all(t, use);
      case Elementwise::select: pass(b, use); return pass(t.operands[2], use);
      case Elementwise::abs:
      case Elementwise::neg:
        if (use.is_divisor && !is_positive) pass(a, use);
        return;
      case Elementwise::equal:
      case Elementwise::not_equal:
      case Elementwise::less:
      case Elementwise::less_equal: compared(t.fn, a, b); return compared(t.fn, b, a);
      default: return;
    }
  }

  bool is_negative(int i) const { return is_number(i) && term(i).value < 0; }
  bool is_above_0(int i) const { return is_number(i) && term(i).value > 0; }
  // A divisor max(i, 1e-12): a norm, for example, which may be 0.
  void pass_clamped(int i, InputUse use) {
    use.use = std::max(use.use, Use::positive);
    use.is_divisor = false;
    pass(i, use);
  }
  // x * -1, which is how a graph represents a subtracted value.
  bool is_negated(int i) const {
    if (!applies(i, Elementwise::mul)) return false;
    const std::vector<int>& o = term(i).operands;
    return (is_negative(o[0]) && !is_number(o[1])) || (is_negative(o[1]) && !is_number(o[0]));
  }

  void visit_difference(int a, int b, const InputUse& use, bool is_positive, bool is_whole) {
    const bool is_from_one = is_number(a) && term(a).value == 1;
    if (is_from_one && (is_positive || use.use == Use::probability)) {
      demand(b, Use::probability);
    } else if (is_positive && !is_number(b)) {
      demand(a, Use::moment);
    } else if (is_positive || is_whole) {
      pass(a, use);
      if (is_whole) pass(b, use);
    }
  }

  // Derives the use of term `i` from the term `with` that `i` is compared with.
  void compared(Elementwise fn, int i, int with) {
    if (columns_[static_cast<size_t>(i)]) return;
    if (const auto& columns = columns_[static_cast<size_t>(with)]) {
      const bool is_bound = fn == Elementwise::less || fn == Elementwise::less_equal;
      return demand_place(i, is_bound ? *columns + 1 : *columns, false);
    }
    if (applies(with, Elementwise::random)) demand(i, Use::probability);
  }

  Terms terms_;
  std::vector<std::optional<Dim>> columns_;
  std::vector<std::optional<Dim>> summed_;
  std::vector<InputUse> uses_;
};

}  // namespace

std::map<std::string, InputUse> uses_of_inputs(std::span<const Program> programs) {
  return UseFinder(ProgramTerms(programs).terms).find();
}

std::map<std::string, InputUse> uses_of_inputs(const NamedGraph& named) {
  Terms terms;
  for (int id = 0; id < named.graph.size(); ++id)
    terms.push_back(term_of(named, named.graph.node(id)));
  return UseFinder(std::move(terms)).find();
}

}  // namespace coda::measure
