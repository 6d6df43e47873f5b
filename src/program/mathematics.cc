// SPDX-License-Identifier: Apache-2.0
// Prints a program in ordinary notation. Works on the steps instead of a lifted graph, because a
// graph has no silu and no storage in two orders.
#include "coda/mathematics.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <set>

#include "program/step_table.h"

namespace coda {
namespace {

// The precedence of the outermost operation.
enum class Level : uint8_t { comparison, sum, matmul, product, unary, power, primary };

struct Formula {
  std::string text;
  Level level = Level::primary;
  bool is_number = false;
};

std::string number_text(double number) {
  if (std::isinf(number)) return number < 0 ? "-∞" : "∞";
  std::array<char, 32> buffer;
  const auto [stop, problem] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  return std::string(buffer.data(), stop);
}

std::string bracketed(const Formula& formula, Level least) {
  return formula.level < least ? "(" + formula.text + ")" : formula.text;
}

std::string call(std::string_view name, std::initializer_list<std::string> arguments) {
  std::string list;
  for (const std::string& argument : arguments) list += (list.empty() ? "" : ", ") + argument;
  return std::string(name) + "(" + list + ")";
}

class Notation {
 public:
  explicit Notation(const Program& program) : program_(program), names_(program.steps.size()) {
    for (const Step& s : program.steps) {
      if (program::is_effect(s) && !program::is_maximum(s)) continue;
      for (const int tensor : program::tensors_of(s)) read_.insert(tensor);
    }
    name_values();
  }

  std::vector<std::string> lines() {
    std::vector<std::string> result;
    if (const std::string inputs = inputs_line(); !inputs.empty()) result.push_back(inputs);
    for (int i = 0; i < static_cast<int>(program_.steps.size()); ++i) {
      const Step& s = step(i);
      if (program::is_effect(s)) {
        if (std::string line = effect_line(s); !line.empty()) result.push_back(std::move(line));
      } else if (!names_[i].empty()) {
        const bool is_tensor = named_by_tensor_.contains(i);
        result.push_back(names_[i] + (is_tensor ? dims_text(s.shape) : "") + " = " + made(i).text);
      }
    }
    return result;
  }

 private:
  const Step& step(int i) const { return program_.steps[static_cast<size_t>(i)]; }
  const TensorDecl& tensor(int index) const { return program_.tensors[static_cast<size_t>(index)]; }
  const std::string& name_of(int index) const { return tensor(index).name; }

  // Names values that are used twice; leaves have names already.
  void name_values() {
    std::vector<int> uses(program_.steps.size(), 0);
    std::vector<std::string> stored_as(program_.steps.size());
    std::set<std::string> taken;
    for (const TensorDecl& decl : program_.tensors) taken.insert(decl.name);
    for (const Step& s : program_.steps) {
      for (int operand : s.operands) ++uses[static_cast<size_t>(operand)];
      if (!program::is_tile_store(s) && !program::is_vector_store(s)) continue;
      // A tensor that is added to already names its old value.
      if (!read_.contains(s.tensor()))
        stored_as[static_cast<size_t>(s.operands[0])] = name_of(s.tensor());
    }
    int number = 0;
    for (int i = 0; i < static_cast<int>(program_.steps.size()); ++i) {
      const bool is_leaf = step(i).operands.empty() && !program::is_product(step(i));
      if (uses[i] < 2 || is_leaf) continue;
      names_[i] = stored_as[i];
      if (!names_[i].empty()) {
        named_by_tensor_.insert(i);
        continue;
      }
      do {
        names_[i] = "v" + std::to_string(++number);
      } while (taken.contains(names_[i]));
    }
  }

  // Of a matrix [M, N], of a vector [M].
  static std::string dims_text(const Shape& shape) {
    if (shape.is_scalar()) return "";
    if (shape.is_per_row()) return "[" + shape.rows.text() + "]";
    if (shape.is_per_column()) return "[" + shape.cols.text() + "]";
    return shape.text();
  }
  static std::string_view along(const Shape& shape) {
    return shape.is_per_row() ? " per row" : shape.is_per_column() ? " per column" : "";
  }

  // What the program reads.
  std::string inputs_line() const {
    std::string list;
    for (const int index : read_) {
      const TensorDecl& decl = tensor(index);
      const bool is_partial = decl.kind != TensorKind::dense;
      list += (list.empty() ? "of " : ", ") + decl.name +
              (is_partial ? " (partials of " + decl.shape.text() + ")"
                          : dims_text(decl.shape) + std::string(along(decl.shape)));
    }
    return list;
  }

  std::string effect_line(const Step& s) {
    const int value = s.operands[0];
    const std::string& name = name_of(s.tensor());
    if (program::is_row_partial(s) || program::is_column_partial(s)) {
      return name + " = " + (program::is_row_partial(s) ? "row " : "column ") +
             reduction_text(s.partial()) + " of " + formula(value).text;
    }
    if (program::is_maximum(s))
      return call("max", {name, "largest |" + formula(value).text + "|"}) + " into " + name;
    if (program::is_transposed_store(s)) {
      const Shape turned{s.shape.cols, s.shape.rows};
      return name + dims_text(turned) + " = " + bracketed(formula(value), Level::primary) + "ᵀ";
    }
    if (names_[value] == name && named_by_tensor_.contains(value)) return "";  // is there already
    return name + dims_text(s.shape) + " = " + formula(value).text;
  }

  static std::string reduction_text(PartialKind kind) {
    switch (kind) {
      case PartialKind::sum: return "sums";
      case PartialKind::max: return "maxima";
      case PartialKind::abs_max: return "largest magnitudes";
      case PartialKind::log_sum_exp: return "log-sum-exps";
      case PartialKind::entropy: return "entropies of softmax";
      case PartialKind::mean_m2: return "means, and sums of (value - mean)²,";
    }
    return std::string(info(kind).name);
  }

  // A use of a value: its name, or its expression.
  Formula formula(int i) { return names_[i].empty() ? made(i) : Formula{names_[i]}; }
  Formula operand(int i, size_t index) { return formula(step(i).operands[index]); }

  Formula made(int i) {
    const Step& s = step(i);
    if (program::is_product(s)) return product_of_matrices(s);
    if (program::is_constant(s))
      return {number_text(s.number()), s.number() < 0 ? Level::unary : Level::primary, true};
    if (program::is_elementwise(s)) return elementwise(i);
    if (program::is_combination(s)) return combination(s);
    if (program::is_tile_load(s) || program::is_vector_load(s)) return loaded(s);
    if (program::is_column_index(s)) return {"column_index"};
    if (program::is_size(s)) {
      const std::string text = s.size().text();
      return {text, text.find_first_of(" *") == std::string::npos ? Level::primary : Level::sum};
    }
    if (program::is_rounding(s)) return {call(coda::name_of(s.dtype()), {operand(i, 0).text})};
    if (program::is_selection(s)) {
      return {bracketed(operand(i, 0), Level::primary) + "[i, " + operand(i, 1).text + "[i]]"};
    }
    if (program::splits_pairs(s)) return member(i);
    if (program::merges_pairs(s)) return merged(i);
    if (program::takes_largest_of_groups(s)) {
      return {
          call("largest magnitude of each " + s.group().text() + " columns", {operand(i, 0).text})};
    }
    if (program::sums_groups(s))
      return {call("sums of each " + s.group().text() + " columns", {operand(i, 0).text})};
    if (program::repeats_groups(s))
      return {call("repeat each column " + s.group().text() + " times", {operand(i, 0).text})};
    if (s.kind() == StepKind::transpose_vector)
      return {bracketed(operand(i, 0), Level::primary) + "ᵀ"};
    if (s.kind() == StepKind::reduce_vector) return {call("sum", {operand(i, 0).text})};
    std::string operands;
    for (size_t o = 0; o < s.operands.size(); ++o)
      operands += (o == 0 ? "" : ", ") + operand(i, o).text;
    return {std::string(program::name_of(s.kind())) + "(" + operands + ")"};
  }

  // An operand with scales: each block times its scale.
  std::string operand_text(int operand, int scales) const {
    const std::string& name = name_of(operand);
    return scales < 0 ? name : "(" + name + " scaled by " + name_of(scales) + ")";
  }

  Formula product_of_matrices(const Step& s) const {
    std::string text;
    for (const GemmSegment& segment : s.segments()) {
      text += (text.empty() ? "" : " + ") + operand_text(segment.a, segment.scales_a) +
              (segment.transpose_a ? "ᵀ" : "") + " · " + operand_text(segment.b, segment.scales_b) +
              (segment.transpose_b ? "ᵀ" : "");
    }
    return {text, s.segments().size() > 1 ? Level::sum : Level::matmul};
  }

  Formula loaded(const Step& s) const {
    std::string text = name_of(s.tensor());
    if (s.row_index() >= 0) text += "[" + name_of(s.row_index()) + "]";
    if (s.repeat() == Dim(1)) return {text};
    return {call("repeat columns", {text, s.repeat().text() + " times"})};
  }

  // The result of a finalizer's combine, in ordinary words where there are any.
  Formula combination(const Step& s) const {
    const std::string& partials = name_of(s.tensor());
    const PartialInfo& kind = info(s.partial());
    const bool is_single = s.lane() >= 0 && s.lane() < kind.lanes;
    if (kind.lanes == 1) return {call(kind.name, {partials})};
    if (!is_single) return {call(kind.both == "log_sum_exp" ? "logsumexp" : kind.name, {partials})};
    const std::string_view result = kind.results[static_cast<size_t>(s.lane())];
    if (result == "log_sum")
      return {"logsumexp(" + partials + ") - max(" + partials + ")", Level::sum};
    return {call(result, {partials})};
  }

  // One member of each pair of columns, as a NumPy slice if possible.
  Formula member(int i) {
    const Step& s = step(i);
    const Formula whole = operand(i, 0);
    const Dim& columns = step(s.operands[0]).shape.cols;
    const std::string text = bracketed(whole, Level::primary);
    if (s.group().is(2)) return {text + "[:, " + std::to_string(s.which()) + "::2]"};
    if (s.group() == columns) {
      const std::string half = s.shape.cols.text();
      return {text + (s.which() == 0 ? "[:, :" + half + "]" : "[:, " + half + ":]")};
    }
    const char* which = s.which() == 0 ? "first" : "second";
    return {call(std::string(which) + " halves of each " + s.group().text() + " columns",
                 {whole.text})};
  }
  Formula merged(int i) {
    const Step& s = step(i);
    const std::string first = operand(i, 0).text;
    const std::string second = operand(i, 1).text;
    if (s.group().is(2)) return {call("interleave columns", {first, second})};
    if (s.group() == s.shape.cols) return {"[" + first + ", " + second + "]"};
    return {call("join halves of each " + s.group().text() + " columns", {first, second})};
  }

  Formula elementwise(int i) {
    const std::vector<int>& operands = step(i).operands;
    const auto binary = [&](const char* sign, Level level, Level right) {
      return Formula{bracketed(operand(i, 0), level) + sign + bracketed(operand(i, 1), right),
                     level};
    };
    const auto comparison = [&](const char* sign) {
      return Formula{binary(sign, Level::sum, Level::sum).text, Level::comparison};
    };
    switch (step(i).op()) {
      case Elementwise::add: return binary(" + ", Level::sum, Level::sum);
      case Elementwise::sub: return binary(" - ", Level::sum, Level::matmul);
      case Elementwise::mul:
        if (operands[0] == operands[1])
          return {bracketed(operand(i, 0), Level::primary) + "²", Level::power};
        return product(operand(i, 0), operand(i, 1));
      case Elementwise::div: return binary(" / ", Level::product, Level::unary);
      case Elementwise::recip:
        return {"1 / " + bracketed(operand(i, 0), Level::unary), Level::product};
      case Elementwise::neg: return {"-" + bracketed(operand(i, 0), Level::product), Level::unary};
      case Elementwise::less: return comparison(" < ");
      case Elementwise::equal: return comparison(" == ");
      case Elementwise::less_equal: return comparison(" ≤ ");
      case Elementwise::not_equal: return comparison(" ≠ ");
      default: {
        std::string list;
        for (size_t o = 0; o < operands.size(); ++o)
          list += (o == 0 ? "" : ", ") + operand(i, o).text;
        return {std::string(info(step(i).op()).name) + "(" + list + ")"};
      }
    }
  }

  // A number comes before its factor, without a sign.
  static Formula product(Formula a, Formula b) {
    if (b.is_number) std::swap(a, b);
    const std::string right = bracketed(b, Level::product);
    const bool needs_sign = right.front() >= '0' && right.front() <= '9';
    if (a.is_number && !needs_sign)
      return {bracketed(a, Level::primary) + " " + right, Level::product};
    return {bracketed(a, Level::product) + " ⊙ " + right, Level::product};
  }

  const Program& program_;
  std::set<int> read_;              // tensors that are read
  std::vector<std::string> names_;  // of steps; empty: printed where it is used
  std::set<int> named_by_tensor_;
};

}  // namespace

std::vector<std::string> mathematics(const Program& program) {
  verify(program);
  return Notation(program).lines();
}

}  // namespace coda
