// SPDX-License-Identifier: Apache-2.0
// Construction of steps with shape inference.
#include "program/assembler.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/columns.h"
#include "coda/error.h"
#include "program/problem.h"
#include "program/tile_map.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

// Tensors in the order in which steps first name them; those that no step names stay last.
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
    for (GemmSegment& segment : step.segments) visit(segment.a), visit(segment.b);
    visit(step.tensor);
    visit(step.row_index);
  }
  for (size_t t = 0; t < place.size(); ++t) {
    if (place[t] < 0) tensors.push_back(program.tensors[t]);
  }
  program.tensors = std::move(tensors);
}

[[noreturn]] void wrong(std::string message) { fail(-1, std::move(message)); }

}  // namespace

int Assembler::root(int node) const {
  while (nodes_[node].parent != node) node = nodes_[node].parent;
  return node;
}

int Assembler::known(const Dim& size) {
  nodes_.push_back({static_cast<int>(nodes_.size()), size, step_count()});
  return nodes_.back().parent;
}

int Assembler::unknown() {
  nodes_.push_back({static_cast<int>(nodes_.size()), std::nullopt, step_count()});
  return nodes_.back().parent;
}

bool Assembler::unify(int a, int b) {
  a = root(a);
  b = root(b);
  if (a == b) return true;
  if (nodes_[a].size && nodes_[b].size) {
    if (*nodes_[a].size != *nodes_[b].size) return false;
    nodes_[b].parent = a;
    return true;
  }
  // An unknown size is one of a vector's length or a tile's side, never a unit dimension.
  if (is_unit(a) || is_unit(b)) return false;
  if (nodes_[a].size) std::swap(a, b);
  nodes_[a].parent = b;
  return true;
}

std::string Assembler::shape_text(int step) const {
  const auto text = [&](int node) {
    return size_of(node) ? size_of(node)->text() : std::string("?");
  };
  return "[" + text(step_sizes_[step].rows) + ", " + text(step_sizes_[step].cols) + "]";
}

Dim Assembler::need_columns(int step, const char* what) const {
  const std::optional<Dim>& size = size_of(step_sizes_[step].cols);
  if (!size) {
    wrong(std::string(what) +
          " needs to know the columns of its operand here; write the shape where the tensor is "
          "loaded");
  }
  return *size;
}

void Assembler::order_tensors(const std::vector<std::string>& names) {
  if (!program_.tensors.empty()) wrong("the order of tensors is given once, before the first step");
  for (const std::string& name : names) {
    if (tensor_index_.contains(name)) wrong("tensor '" + name + "' is listed twice");
    tensor_index_[name] = static_cast<int>(program_.tensors.size());
    program_.tensors.push_back({});
    program_.tensors.back().name = name;
    tensor_sizes_.push_back({unknown(), unknown()});
    dtypes_.push_back(std::nullopt);
    mentioned_.push_back(0);
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
    wrong("tensor '" + tensor.name + "' holds " +
          (decl.kind == TensorKind::dense ? "values" : "partials") +
          " of another kind where it was named before");
  }
  if (!unify(tensor_sizes_[index].rows, sizes.rows) ||
      !unify(tensor_sizes_[index].cols, sizes.cols)) {
    const auto text = [&](const Sizes& s) {
      const auto one = [&](int node) {
        return size_of(node) ? size_of(node)->text() : std::string("?");
      };
      return "[" + one(s.rows) + ", " + one(s.cols) + "]";
    };
    wrong("tensor '" + tensor.name + "' has shape " + text(tensor_sizes_[index]) +
          ", here it would be " + text(sizes));
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

Assembler::Sizes Assembler::mentioned_sizes(const TensorMention& tensor, bool per_row,
                                            bool per_column) {
  Sizes sizes;
  if (tensor.dims.size() == 2) return {known(tensor.dims[0]), known(tensor.dims[1])};
  if (tensor.dims.size() == 1) {
    if (per_row) return {known(tensor.dims[0]), known(1)};
    if (per_column) return {known(1), known(tensor.dims[0])};
    wrong("'" + tensor.name + "' needs two dimensions, as in " + quoted_name(tensor.name) +
          "[M, N]");
  }
  sizes.rows = per_column ? known(1) : unknown();
  sizes.cols = per_row ? known(1) : unknown();
  return sizes;
}

int Assembler::add(Step step, Sizes sizes) {
  bool on_tile =
      step.kind == StepKind::gemm || step.kind == StepKind::load_tile ||
      (step.kind == StepKind::elementwise && !is_unit(sizes.rows) && !is_unit(sizes.cols));
  for (int operand : step.operands) on_tile = on_tile || on_tile_[operand];
  on_tile_.push_back(on_tile);
  program_.steps.push_back(std::move(step));
  step_sizes_.push_back(sizes);
  return step_count() - 1;
}

int Assembler::gemm(const std::vector<SegmentMention>& segments) {
  Step step{StepKind::gemm};
  Sizes result{unknown(), unknown()};
  for (const SegmentMention& s : segments) {
    GemmSegment segment;
    segment.a = mention(s.a, mentioned_sizes(s.a, false, false));
    segment.b = mention(s.b, mentioned_sizes(s.b, false, false));
    const Sizes a = tensor_sizes_[segment.a];
    const Sizes b = tensor_sizes_[segment.b];
    for (const auto& [sizes, tensor] : {std::pair{a, &s.a}, std::pair{b, &s.b}}) {
      if (!size_of(sizes.rows) || !size_of(sizes.cols)) {
        wrong("the shape of '" + tensor->name + "' is not known here; write it, as in " +
              quoted_name(tensor->name) + "[M, K]");
      }
    }
    if (s.layout) {
      const std::string& layout = *s.layout;
      if (layout != "nn" && layout != "nt" && layout != "tn" && layout != "tt") {
        wrong("the layout of a gemm is nn, nt, tn or tt (t: stored transposed), not '" + layout +
              "'");
      }
      segment.transpose_a = layout[0] == 't';
      segment.transpose_b = layout[1] == 't';
    } else {
      int matches = 0;
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
          if (*size_of(i == 0 ? a.rows : a.cols) != *size_of(j == 0 ? b.rows : b.cols)) continue;
          ++matches;
          segment.transpose_a = i == 0;
          segment.transpose_b = j == 1;
        }
      }
      const std::string operands = "'" + s.a.name + "' and '" + s.b.name + "' share ";
      if (matches == 0) wrong(operands + "no dimension to contract");
      if (matches > 1) {
        wrong(operands +
              "more than one dimension; add the layout, nn, nt, tn or tt (t: stored transposed), "
              "after them");
      }
    }
    const int k_a = segment.transpose_a ? a.rows : a.cols;
    const int k_b = segment.transpose_b ? b.cols : b.rows;
    if (*size_of(k_a) != *size_of(k_b)) {
      wrong("'" + s.a.name + "' and '" + s.b.name + "' do not agree along the contraction: " +
            size_of(k_a)->text() + " and " + size_of(k_b)->text());
    }
    const Sizes product{segment.transpose_a ? a.cols : a.rows,
                        segment.transpose_b ? b.rows : b.cols};
    const bool first = step.segments.empty();
    if (first) result = product;
    if (!first && (*size_of(result.rows) != *size_of(product.rows) ||
                   *size_of(result.cols) != *size_of(product.cols))) {
      wrong("segments of one gemm have different shapes: [" + size_of(result.rows)->text() + ", " +
            size_of(result.cols)->text() + "] and [" + size_of(product.rows)->text() + ", " +
            size_of(product.cols)->text() + "]");
    }
    step.segments.push_back(segment);
  }
  return add(std::move(step), result);
}

int Assembler::load_tile(const TensorMention& tensor, const std::optional<TensorMention>& rows,
                         int64_t repeat) {
  Step step{StepKind::load_tile};
  step.repeat = repeat;
  step.tensor = mention(tensor, mentioned_sizes(tensor, false, false));
  Sizes result = tensor_sizes_[step.tensor];
  if (repeat != 1) {
    if (repeat < 1) wrong("columns are repeated at least once");
    if (!size_of(result.cols)) {
      wrong("the shape of '" + tensor.name + "' is not known here; write it, as in " +
            quoted_name(tensor.name) + "[M, N]");
    }
    result.cols = known(repeat * *size_of(result.cols));
  }
  if (rows) {
    TensorMention index = *rows;
    const bool is_first =
        !tensor_index_.contains(index.name) || !mentioned_[tensor_index_.at(index.name)];
    if (is_first && !index.dtype) index.dtype = DType::i32;
    step.row_index = mention(index, mentioned_sizes(index, true, false));
    result.rows = tensor_sizes_[step.row_index].rows;
  }
  return add(std::move(step), result);
}

int Assembler::load_vector(StepKind kind, const TensorMention& tensor) {
  Step step{kind};
  const bool scalar = kind == StepKind::load_scalar;
  const Sizes sizes = scalar && tensor.dims.empty()
                          ? Sizes{known(1), known(1)}
                          : mentioned_sizes(tensor, kind == StepKind::load_per_row,
                                            kind == StepKind::load_per_column);
  const int index = mention(tensor, sizes);
  step.tensor = index;
  return add(std::move(step), tensor_sizes_[index]);
}

int Assembler::constant(double number) {
  Step step{StepKind::constant};
  step.number = number;
  return add(std::move(step), {known(1), known(1)});
}

int Assembler::column_index(const std::optional<Dim>& columns) {
  Step step{StepKind::column_index};
  return add(std::move(step), {known(1), columns ? known(*columns) : unknown()});
}

int Assembler::elementwise(Elementwise op, std::vector<int> operands) {
  if (static_cast<int>(operands.size()) != info(op).arity) {
    wrong(std::string(info(op).name) + " takes " + std::to_string(info(op).arity) +
          " operands, not " + std::to_string(operands.size()));
  }
  Sizes result{known(1), known(1)};
  const auto broadcast = [&](int& size, int operand) {
    if (is_unit(operand)) return true;
    if (!is_unit(size)) return unify(size, operand);
    size = operand;
    return true;
  };
  for (int operand : operands) {
    if (!broadcast(result.rows, step_sizes_[operand].rows) ||
        !broadcast(result.cols, step_sizes_[operand].cols)) {
      std::string list;
      for (int o : operands) list += (list.empty() ? "" : " and ") + shape_text(o);
      wrong("shapes " + list + " do not broadcast in " + std::string(info(op).name));
    }
  }
  Step step{StepKind::elementwise};
  step.op = op;
  step.operands = std::move(operands);
  return add(std::move(step), result);
}

int Assembler::split_pair(int value, const PairGroup& group, int which) {
  const Dim columns = need_columns(value, "split_pairs");
  Step step{StepKind::split_pair, {}, {value}};
  step.group = group.value_or(columns);
  step.which = which;
  const std::optional<Dim> half = columns.half();
  if (!half)
    wrong(columns.text() +
          " columns cannot be halved for all sizes; write the width as a multiple, such as 2*I");
  return add(std::move(step), {step_sizes_[value].rows, known(*half)});
}

int Assembler::merge_pairs(int first, int second, const PairGroup& group) {
  if (!unify(step_sizes_[first].rows, step_sizes_[second].rows) ||
      !unify(step_sizes_[first].cols, step_sizes_[second].cols)) {
    wrong("members of pairs have one shape, not " + shape_text(first) + " and " +
          shape_text(second));
  }
  const Dim columns = 2 * need_columns(first, "merge_pairs");
  Step step{StepKind::merge_pairs, {}, {first, second}};
  step.group = group.value_or(columns);
  return add(std::move(step), {step_sizes_[first].rows, known(columns)});
}

int Assembler::as_stored(int value, DType dtype) {
  Step step{StepKind::as_stored, {}, {value}};
  step.dtype = dtype;
  return add(std::move(step), step_sizes_[value]);
}

int Assembler::reduce_group(int value, const Dim& group) {
  const Dim columns = need_columns(value, "reduce_group");
  const std::optional<Dim> groups = group == Dim(0) ? std::nullopt : quotient(columns, group);
  if (!groups)
    wrong("groups of " + group.text() + " columns do not divide " + columns.text() +
          " columns for all sizes");
  Step step{StepKind::reduce_group, {}, {value}};
  step.group = group;
  return add(std::move(step), {step_sizes_[value].rows, known(*groups)});
}

int Assembler::repeat_group(int value, const Dim& group) {
  const Dim groups = need_columns(value, "repeat_group");
  if (!groups.is_constant() && !group.is_constant()) {
    wrong(groups.text() + " groups of " + group.text() +
          " columns have no linear size; one of the two must be a number");
  }
  Step step{StepKind::repeat_group, {}, {value}};
  step.group = group;
  const Dim columns = group.is_constant() ? group.constant() * groups : groups.constant() * group;
  return add(std::move(step), {step_sizes_[value].rows, known(columns)});
}

int Assembler::select_column(int value, int index) {
  if (!unify(step_sizes_[value].rows, step_sizes_[index].rows)) {
    wrong("one column a row is selected: " + shape_text(value) +
          " needs an index of as many rows, not " + shape_text(index));
  }
  Step step{StepKind::select_column, {}, {value, index}};
  return add(std::move(step), {step_sizes_[value].rows, known(1)});
}

int Assembler::combine(TensorKind kind, const TensorMention& tensor, PartialKind partial,
                       int lane) {
  Step step{StepKind::combine};
  step.partial = partial;
  step.lane = lane;
  step.tensor = mention(tensor, mentioned_sizes(tensor, false, false), kind, info(partial).lanes);
  const Sizes sizes = tensor_sizes_[step.tensor];
  const bool rows = kind == TensorKind::row_partial;
  return add(std::move(step), rows ? Sizes{sizes.rows, known(1)} : Sizes{known(1), sizes.cols});
}

int Assembler::reduce_vector(int value) {
  Step step{StepKind::reduce_vector, {}, {value}};
  return add(std::move(step), {known(1), known(1)});
}

int Assembler::transpose_vector(int value) {
  Step step{StepKind::transpose_vector, {}, {value}};
  const Sizes sizes = step_sizes_[value];
  return add(std::move(step), {sizes.cols, sizes.rows});
}

int Assembler::store(const TensorMention& tensor, int value) {
  const bool from_tile = is_on_tile(value) && program_.steps[value].kind != StepKind::select_column;
  const Sizes sizes = step_sizes_[value];
  if (!tensor.dims.empty()) {
    const Sizes given = mentioned_sizes(tensor, is_unit(sizes.cols), is_unit(sizes.rows));
    if (!unify(given.rows, sizes.rows) || !unify(given.cols, sizes.cols)) {
      wrong("a value of shape " + shape_text(value) + " does not fit '" + tensor.name + "'");
    }
  }
  Step step{from_tile ? StepKind::store_tile : StepKind::store_vector, {}, {value}};
  step.tensor = mention(tensor, sizes);
  return add(std::move(step), sizes);
}

int Assembler::partial(StepKind kind, const TensorMention& tensor, PartialKind partial, int value) {
  Step step{kind, {}, {value}};
  step.partial = partial;
  Sizes sizes = step_sizes_[value];
  const bool rows = kind == StepKind::row_partial;
  if (rows) sizes.cols = unknown();  // base columns: known when the tile spaces are
  if (!tensor.dims.empty()) {
    const Sizes given = mentioned_sizes(tensor, false, false);
    if (!unify(given.rows, sizes.rows) || !unify(given.cols, sizes.cols)) {
      wrong("a value of shape " + shape_text(value) + " does not reduce to '" + tensor.name + "'");
    }
  }
  step.tensor = mention(tensor, sizes, rows ? TensorKind::row_partial : TensorKind::column_partial,
                        info(partial).lanes);
  return add(std::move(step), step_sizes_[value]);
}

// Effects in their order, each behind what it needs. Loads of a tensor that is stored in place stay
// before the store.
std::vector<int> Assembler::order_of_use() const {
  std::vector<int> order;
  std::vector<char> placed(program_.steps.size(), 0);
  std::vector<int> uses(program_.steps.size(), 0);
  for (const Step& step : program_.steps) {
    for (int operand : step.operands) ++uses[operand];
  }
  std::function<void(int)> place;
  // What has a name of its own stands before an expression, so that the expression stays in one
  // piece.
  const std::function<void(int)> place_named = [&](int i) {
    for (int operand : program_.steps[i].operands) {
      const StepKind kind = program_.steps[operand].kind;
      if (placed[operand]) continue;
      if (uses[operand] > 1 || kind == StepKind::gemm || kind == StepKind::split_pair) {
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
    // Members of a pair stand side by side.
    const int other = step.which == 0 ? i + 1 : i - 1;
    const bool is_pair = step.kind == StepKind::split_pair && other >= 0 && other < step_count() &&
                         program_.steps[other].kind == StepKind::split_pair && uses[other] > 0 &&
                         !placed[other] && program_.steps[other].which != step.which &&
                         program_.steps[other].operands == step.operands &&
                         program_.steps[other].group == step.group;
    if (is_pair && step.which == 1) place(other);
    order.push_back(i);
    if (is_pair && step.which == 0) place(other);
  };
  for (int i = 0; i < step_count(); ++i) {
    if (!is_effect(program_.steps[i].kind)) continue;
    for (int j = 0; j < i; ++j) {
      const Step& load = program_.steps[j];
      if (load.operands.empty() && load.tensor == program_.steps[i].tensor) place(j);
    }
    place(i);
  }
  for (int i = 0; i < step_count(); ++i) {
    if (placed[i] || program_.steps[i].kind == StepKind::split_pair) continue;
    fail(i, "its value is never used; store it or remove the step");
  }
  return order;
}

Program Assembler::finish(bool reorder) {
  Program program;
  program.name = program_.name;
  std::vector<int> order(program_.steps.size());
  std::iota(order.begin(), order.end(), 0);
  if (reorder) order = order_of_use();
  std::vector<int> renumbered(program_.steps.size(), -1);
  for (int i : order) {
    Step step = program_.steps[i];
    const Sizes sizes = step_sizes_[i];
    const auto& rows = size_of(sizes.rows);
    const auto& cols = size_of(sizes.cols);
    if (!rows || !cols) {
      fail(i, step.tensor >= 0 ? "the shape of '" + program_.tensors[step.tensor].name +
                                     "' cannot be inferred; write it"
                               : std::string("the shape of this value cannot be inferred"));
    }
    step.shape = {*rows, *cols};
    for (int& operand : step.operands) operand = renumbered[operand];
    renumbered[i] = static_cast<int>(program.steps.size());
    program.steps.push_back(std::move(step));
  }
  program.tensors = program_.tensors;
  try {
    resolve_tensors(program);
    if (reorder) number_tensors_by_use(program);
    if (auto problem = find_problem(program)) throw *std::move(problem);
  } catch (Problem& problem) {
    if (problem.step >= 0) problem.step = order[problem.step];
    throw;
  }
  return program;
}

// The columns of a row partial that no mention gives are the base columns of its tile space.
void Assembler::resolve_tensors(Program& program) const {
  std::vector<int> reduced(program.tensors.size(), -1);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (program.steps[i].kind != StepKind::row_partial) continue;
    reduced[program.steps[i].tensor] = static_cast<int>(i);
  }
  std::optional<TileMap> tiles;
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    TensorDecl& decl = program.tensors[t];
    decl.dtype = dtypes_[t].value_or(DType::f32);
    if (!mentioned_[t]) fail(-1, "no step names tensor '" + decl.name + "'");
    const auto& rows = size_of(tensor_sizes_[t].rows);
    std::optional<Dim> cols = size_of(tensor_sizes_[t].cols);
    if (!cols && reduced[t] >= 0) {
      if (!tiles) tiles = map_tiles(program);
      const int space = tiles->space[reduced[t]];
      if (tiles->on_tile[reduced[t]]) cols = tiles->spaces[space].shape.cols;
    }
    if (!rows || !cols) {
      fail(-1,
           "the shape of '" + decl.name + "' cannot be inferred; write it where it is first named");
    }
    decl.shape = {*rows, *cols};
  }
}

}  // namespace coda::program
