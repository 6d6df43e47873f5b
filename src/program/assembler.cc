// SPDX-License-Identifier: Apache-2.0
// Constructs steps and infers shapes.
#include "program/assembler.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "coda/error.h"
#include "program/tile_map.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

// Orders tensors by their first use; unused ones come last.
void number_tensors_by_use(Program& program) {
  std::vector<int> place(program.tensors.size(), -1);
  std::vector<TensorDecl> tensors;
  const auto visit = [&](int& tensor) {
    if (tensor < 0) return;
    if (place[tensor] < 0) {
      place[tensor] = static_cast<int>(tensors.size());
      tensors.push_back(program.tensors[tensor]);
    }
    tensor = place[tensor];
  };
  for (Step& step : program.steps) {
    for (int* tensor : tensor_fields(step)) visit(*tensor);
  }
  for (size_t t = 0; t < place.size(); ++t) {
    if (place[t] < 0) tensors.push_back(program.tensors[t]);
  }
  program.tensors = std::move(tensors);
}

[[noreturn]] void wrong(std::string message) { fail(-1, std::move(message)); }

}  // namespace

void Assembler::order_tensors(const std::vector<std::string>& names) {
  if (!program_.tensors.empty()) wrong("the order of tensors is given once, before the first step");
  for (const std::string& name : names) {
    if (tensor_index_.contains(name)) wrong("tensor '" + name + "' is listed twice");
    tensor_index_[name] = static_cast<int>(program_.tensors.size());
    program_.tensors.push_back({});
    program_.tensors.back().name = name;
    tensor_sizes_.push_back({sizes_.unknown(), sizes_.unknown()});
    dtypes_.push_back(std::nullopt);
    mentioned_.push_back(0);
  }
}

void Assembler::mark_constants(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!constants_.insert(name).second) wrong("constant '" + name + "' is listed twice");
  }
}

int Assembler::mention(const TensorMention& tensor, Sizes sizes, TensorKind kind, int lanes) {
  const auto [found, is_new] =
      tensor_index_.try_emplace(tensor.name, static_cast<int>(program_.tensors.size()));
  const int index = found->second;
  if (is_new) {
    program_.tensors.push_back({});
    program_.tensors.back().name = tensor.name;
    tensor_sizes_.push_back({});
    dtypes_.push_back(std::nullopt);
    mentioned_.push_back(0);
  }
  TensorDecl& decl = program_.tensors[index];
  if (!mentioned_[index]) {
    mentioned_[index] = 1;
    decl.kind = kind;
    decl.lanes = lanes;
    tensor_sizes_[index] = sizes;
    dtypes_[index] = tensor.dtype;
    return index;
  }
  if (decl.kind != kind || decl.lanes != lanes) {
    if (decl.kind != TensorKind::dense && kind == TensorKind::dense)
      wrong("tensor '" + tensor.name +
            "' holds partials; a finalizer, a program of its own, makes "
            "a vector of them: store(r, " +
            (decl.kind == TensorKind::row_partial ? "combine_rows" : "combine_columns") + "(KIND(" +
            tensor.name + "[M, N])))");
    wrong("tensor '" + tensor.name + "' holds " +
          (decl.kind == TensorKind::dense ? "values" : "partials") +
          " of another kind where it was named before");
  }
  if (!sizes_.unify(tensor_sizes_[index], sizes)) {
    wrong("tensor '" + tensor.name + "' has shape " + sizes_.text(tensor_sizes_[index]) +
          ", here it would be " + sizes_.text(sizes));
  }
  if (tensor.dtype) {
    if (dtypes_[index].value_or(DType::f32) != *tensor.dtype) {
      wrong("tensor '" + tensor.name + "' is " +
            std::string(coda::name_of(dtypes_[index].value_or(DType::f32))) +
            " where it was named before, not " + std::string(coda::name_of(*tensor.dtype)));
    }
    dtypes_[index] = tensor.dtype;
  }
  return index;
}

Sizes Assembler::mentioned_sizes(const TensorMention& tensor, bool per_row, bool per_column) {
  const auto& dims = tensor.dims;
  if (dims.size() == 2) return {sizes_.known(dims[0]), sizes_.known(dims[1])};
  if (dims.size() == 1) {
    if (per_row) return {sizes_.known(dims[0]), sizes_.known(1)};
    if (per_column) return {sizes_.known(1), sizes_.known(dims[0])};
    wrong("'" + tensor.name + "' needs two dimensions, as in " + quoted_name(tensor.name) +
          "[M, N]");
  }
  return {per_column ? sizes_.known(1) : sizes_.unknown(),
          per_row ? sizes_.known(1) : sizes_.unknown()};
}

void Assembler::need_sizes(const TensorMention& tensor, int index, const char* example) const {
  if (sizes_.at(tensor_sizes_[index].rows) && sizes_.at(tensor_sizes_[index].cols)) return;
  wrong("the shape of '" + tensor.name + "' is not known here; write it, as in " +
        quoted_name(tensor.name) + example);
}

int Assembler::operand(const TensorMention& tensor, const char* example) {
  const int index = mention(tensor, mentioned_sizes(tensor, false, false));
  need_sizes(tensor, index, example);
  return index;
}

GemmSegment Assembler::segment(const SegmentMention& s) {
  GemmSegment segment;
  segment.a = operand(s.a.tensor, "[M, K]");
  if (s.a.scales) segment.scales_a = operand(*s.a.scales, "[M, 16] for 2048 columns");
  segment.b = operand(s.b.tensor, "[M, K]");
  if (s.b.scales) segment.scales_b = operand(*s.b.scales, "[16, 16] for 2048 x 2048");
  if (s.layout) {
    const std::string& layout = *s.layout;
    if (layout != "nn" && layout != "nt" && layout != "tn" && layout != "tt") {
      wrong("the layout of a gemm is nn, nt, tn or tt (t: stored transposed), not '" + layout +
            "'");
    }
    segment.transpose_a = layout[0] == 't';
    segment.transpose_b = layout[1] == 't';
    return segment;
  }
  const Sizes a = tensor_sizes_[segment.a];
  const Sizes b = tensor_sizes_[segment.b];
  int matches = 0;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      if (*sizes_.at(i == 0 ? a.rows : a.cols) != *sizes_.at(j == 0 ? b.rows : b.cols)) continue;
      ++matches;
      segment.transpose_a = i == 0;
      segment.transpose_b = j == 1;
    }
  }
  const std::string operands = "'" + s.a.tensor.name + "' and '" + s.b.tensor.name + "' share ";
  if (matches == 0) wrong(operands + "no dimension to contract");
  if (matches > 1) {
    wrong(operands +
          "more than one dimension; add the layout, nn, nt, tn or tt (t: stored transposed), "
          "after them");
  }
  return segment;
}

// Enters the tensors that a step reads, as its text names them.
void Assembler::name_tensors(StepMention& m) {
  const StepFields fields = fields_of(m.step);
  for (const SegmentMention& s : m.segments) fields.segments->push_back(segment(s));
  if (!m.tensor) return;
  const Argument as = info(m.step.kind()).arguments[0];
  const bool is_scalar = as == Argument::scalar && m.tensor->dims.empty();
  const Sizes sizes =
      is_scalar ? sizes_.known(Shape{})
                : mentioned_sizes(*m.tensor, as == Argument::per_row, as == Argument::per_column);
  *fields.tensor = as == Argument::partial
                       ? mention(*m.tensor, sizes, m.partial, info(m.step.partial()).lanes)
                       : mention(*m.tensor, sizes);
  if (!m.step.repeat().is(1))
    need_sizes(*m.tensor, m.step.tensor(), as == Argument::per_column ? "[128]" : "[M, N]");
  if (!m.row_index) return;
  TensorMention index = *m.row_index;
  const bool is_first =
      !tensor_index_.contains(index.name) || !mentioned_[tensor_index_.at(index.name)];
  if (is_first && !index.dtype) index.dtype = DType::i32;
  *fields.row_index = mention(index, mentioned_sizes(index, true, false));
}

// Enters the tensor that an effect writes. Its shape is the operand's; but the columns of a row
// partial are base columns, which are known only with the tile spaces.
int Assembler::name_target(const StepMention& m) {
  const bool is_partial = info(m.step.kind()).takes(Argument::reduction);
  const bool rows = is_row_partial(m.step);
  const Sizes value = step_sizes_[m.step.operands[0]];
  const Sizes sizes = is_transposed_store(m.step) ? Sizes{value.cols, value.rows}
                      : is_maximum(m.step)
                          ? sizes_.known(Shape{})
                          : Sizes{value.rows, rows ? sizes_.unknown() : value.cols};
  if (!m.tensor->dims.empty()) {
    const Sizes given = mentioned_sizes(*m.tensor, !is_partial && sizes_.is_unit(sizes.cols),
                                        !is_partial && sizes_.is_unit(sizes.rows));
    if (!sizes_.unify(given, sizes)) {
      wrong("a value of shape " + sizes_.text(value) +
            (is_partial ? " does not reduce to '" : " does not fit '") + m.tensor->name + "'");
    }
  }
  if (!is_partial) return mention(*m.tensor, sizes);
  return mention(*m.tensor, sizes, rows ? TensorKind::row_partial : TensorKind::column_partial,
                 info(m.step.partial()).lanes);
}

int Assembler::make(StepMention m) {
  Step& step = m.step;
  if (is_tile_store(step)) {
    const int of = step.operands[0];
    if (!on_tile_[of] || is_selection(program_.steps[of])) step = vector_store(-1, of, {});
  }
  const StepInfo& kind = info(step.kind());
  if (kind.group == StepGroup::effect) {
    *fields_of(step).tensor = name_target(m);
  } else {
    name_tensors(m);
  }
  const ShapeRule rule{.program = program_,
                       .step = step,
                       .sizes = sizes_,
                       .tensors = tensor_sizes_,
                       .values = step_sizes_,
                       .columns = m.columns};
  const Sizes sizes = kind.shape(rule);
  if (kind.takes(Argument::pair_group))
    *fields_of(step).group = m.group ? *m.group : kind.operands() * rule.columns_of_operand();
  bool on_tile = kind.group == StepGroup::source ||
                 (kind.group == StepGroup::elementwise && !sizes_.is_unit(sizes.rows) &&
                  !sizes_.is_unit(sizes.cols));
  for (int operand : step.operands) on_tile = on_tile || on_tile_[operand];
  on_tile_.push_back(on_tile);
  program_.steps.push_back(std::move(step));
  step_sizes_.push_back(sizes);
  return step_count() - 1;
}

int Assembler::constant(double number) { return make({.step = program::constant(number)}); }

int Assembler::elementwise(Elementwise op, std::vector<int> operands) {
  if (static_cast<int>(operands.size()) != info(op).arity) {
    wrong(std::string(info(op).name) + " takes " + std::to_string(info(op).arity) +
          " operands, not " + std::to_string(operands.size()));
  }
  return make({.step = applied(op, std::move(operands), {})});
}

// Effects in their order, each after its operands. Loads of a tensor that is stored in place stay
// before the store.
std::vector<int> Assembler::order_of_use() const {
  std::vector<int> order;
  std::vector<char> placed(program_.steps.size(), 0);
  std::vector<int> uses(program_.steps.size(), 0);
  for (const Step& step : program_.steps) {
    for (int operand : step.operands) ++uses[operand];
  }
  std::function<void(int)> place;
  // A value with a name comes before an expression that uses it, so that the expression's steps
  // stay together.
  const std::function<void(int)> place_named = [&](int i) {
    for (int operand : program_.steps[i].operands) {
      if (placed[operand]) continue;
      if (uses[operand] > 1 || is_statement(program_.steps[operand])) {
        place(operand);
      } else {
        place_named(operand);
      }
    }
  };
  place = [&](int i) {
    if (placed[i]) return;
    placed[i] = 1;
    const Step& step = program_.steps[i];
    place_named(i);
    for (int operand : step.operands) place(operand);
    // Members of a pair stay together.
    const int other = step.which() == 0 ? i + 1 : i - 1;
    const bool is_pair = splits_pairs(step) && other >= 0 && other < step_count() &&
                         splits_pairs(program_.steps[other]) && uses[other] > 0 && !placed[other] &&
                         program_.steps[other].which() != step.which() &&
                         program_.steps[other].operands == step.operands &&
                         program_.steps[other].group() == step.group();
    if (is_pair && step.which() == 1) place(other);
    order.push_back(i);
    if (is_pair && step.which() == 0) place(other);
  };
  for (int i = 0; i < step_count(); ++i) {
    if (!is_effect(program_.steps[i])) continue;
    for (int j = 0; j < i; ++j) {
      const Step& load = program_.steps[j];
      if (load.operands.empty() && load.tensor() == program_.steps[i].tensor()) place(j);
    }
    place(i);
  }
  for (int i = 0; i < step_count(); ++i) {
    if (placed[i] || splits_pairs(program_.steps[i])) continue;
    fail(i, "its value is never used; store it or remove the step");
  }
  return order;
}

Program Assembler::finish(bool reorder) {
  Program program;
  program.name = program_.name;
  std::vector<int> order(program_.steps.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<Problem> problems;
  try {
    if (reorder) order = order_of_use();
    problems = resolve_steps(order, program);
  } catch (Problem& problem) {
    problems = {std::move(problem)};
  }
  if (problems.empty()) {
    try {
      problems = resolve_tensors(program);
    } catch (Problem& problem) {
      problems = {std::move(problem)};
    }
    if (problems.empty()) {
      if (reorder) number_tensors_by_use(program);
      problems = find_problems(program);
    }
    for (Problem& problem : problems) {
      if (problem.step >= 0) problem.step = order[problem.step];
      problem.message =
          with_places(problem.message, [&](int step) { return place_of_step(order[step]); });
    }
  }
  if (!problems.empty()) throw Problems{std::move(problems)};
  return program;
}

bool Assembler::knows(std::string_view tensor) const {
  const auto found = tensor_index_.find(tensor);
  return found != tensor_index_.end() && mentioned_[found->second];
}

// The steps in order, with shapes. Reports only the first steps without a shape, because their
// users have none either.
std::vector<Problem> Assembler::resolve_steps(const std::vector<int>& order,
                                              Program& program) const {
  std::vector<Problem> problems;
  std::vector<int> renumbered(program_.steps.size(), -1);
  std::vector<char> has_shape(program_.steps.size(), 0);
  for (int i : order) {
    Step step = program_.steps[i];
    const Sizes sizes = step_sizes_[i];
    const auto& rows = sizes_.at(sizes.rows);
    const auto& cols = sizes_.at(sizes.cols);
    has_shape[i] = rows && cols;
    if (has_shape[i]) {
      step.shape = {*rows, *cols};
    } else if (std::all_of(step.operands.begin(), step.operands.end(),
                           [&](int operand) { return has_shape[operand]; })) {
      problems.push_back({i, step.tensor() >= 0
                                 ? "the shape of '" + program_.tensors[step.tensor()].name +
                                       "' cannot be inferred; write it"
                                 : std::string("the shape of this value cannot be inferred")});
    }
    for (int& operand : step.operands) operand = renumbered[operand];
    renumbered[i] = static_cast<int>(program.steps.size());
    program.steps.push_back(std::move(step));
  }
  program.tensors = program_.tensors;
  return problems;
}

// Columns of a row partial that no mention specifies are the base columns of its tile space.
std::vector<Problem> Assembler::resolve_tensors(Program& program) const {
  std::vector<Problem> problems;
  std::vector<int> reduced(program.tensors.size(), -1);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (!is_row_partial(program.steps[i])) continue;
    reduced[program.steps[i].tensor()] = static_cast<int>(i);
  }
  for (const std::string& name : constants_) {
    if (!knows(name)) problems.push_back({-1, "no step names the constant '" + name + "'"});
  }
  std::optional<TileMap> tiles;
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    TensorDecl& decl = program.tensors[t];
    decl.dtype = dtypes_[t].value_or(DType::f32);
    decl.is_constant = constants_.contains(decl.name);
    if (!mentioned_[t]) {
      problems.push_back({-1, "no step names tensor '" + decl.name + "'"});
      continue;
    }
    const auto& rows = sizes_.at(tensor_sizes_[t].rows);
    std::optional<Dim> cols = sizes_.at(tensor_sizes_[t].cols);
    if (!cols && reduced[t] >= 0) {
      if (!tiles) tiles = map_tiles(program);
      const int space = tiles->space[reduced[t]];
      if (tiles->on_tile[reduced[t]]) cols = tiles->spaces[space].shape.cols;
    }
    if (rows && cols) {
      decl.shape = {*rows, *cols};
    } else {
      problems.push_back({-1, "the shape of '" + decl.name +
                                  "' cannot be inferred; write it where it is first named"});
    }
  }
  return problems;
}

}  // namespace coda::program
