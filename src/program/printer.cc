// SPDX-License-Identifier: Apache-2.0
// The text of a program. A step whose value is used once, by the step that follows it in operand
// order, is written inside that step's expression; so the parser makes the same steps in the same
// order, and parse_program(text(p)) == p.
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "coda/error.h"
#include "program/problem.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

constexpr int kMaxInlined = 6;  // operations in one expression: more are hard to read

// How tightly the outermost operation of an expression binds.
enum class Level : unsigned char { sum, product, unary, primary };

struct Expression {
  std::string text;
  Level level = Level::primary;
  bool is_number = false;
};

std::string number_text(double number) {
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::array<char, 32> buffer;
  const auto [stop, problem] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  return std::string(buffer.data(), stop);
}

// Dims stand where interleaved and concatenated may: a symbol of that name gets a factor.
std::string group_text(const Dim& group, const Dim& columns) {
  if (group.is(2)) return "interleaved";
  if (group == columns) return "concatenated";
  const std::string text = group.text();
  return text == "interleaved" || text == "concatenated" ? "1*" + text : text;
}

class Printer {
 public:
  explicit Printer(const Program& program)
      : program_(program),
        count_(static_cast<int>(program.steps.size())),
        uses_(program.steps.size(), 0),
        inlined_(program.steps.size(), 0),
        joined_(program.steps.size(), 0),
        names_(program.steps.size()),
        mentioned_(program.tensors.size(), 0) {}

  std::string print() {
    for (const Step& s : program_.steps) {
      for (int operand : s.operands) ++uses_[operand];
    }
    find_statements();
    std::string body;
    for (int i = 0; i < count_; ++i) {
      if (!inlined_[i] && !joined_[i]) body += statement(i);
    }
    return "program " + quoted_name(program_.name) + " {\n" + tensor_order() + body + "}\n";
  }

 private:
  const Step& step(int i) const { return program_.steps[i]; }

  // Both members of a pair, one after the other, are one statement; it stands at the second.
  bool is_second_member(int i) const {
    return i > 0 && step(i).kind == StepKind::split_pair && step(i).which == 1 &&
           step(i - 1).kind == StepKind::split_pair && step(i - 1).which == 0 &&
           step(i).operands == step(i - 1).operands && step(i).group == step(i - 1).group;
  }

  bool may_be_inlined(int i) const {
    return uses_[i] == 1 && step(i).kind != StepKind::gemm && step(i).kind != StepKind::split_pair;
  }

  // From the last step to the first: each statement takes the operands that directly precede it.
  void find_statements() {
    for (int i = count_ - 1; i >= 0;) {
      if (is_second_member(i)) {
        joined_[i - 1] = 1;
        i -= 2;
        continue;
      }
      int cursor = i - 1;
      int budget = kMaxInlined;
      take_operands(i, cursor, budget);
      i = cursor;
    }
  }
  void take_operands(int i, int& cursor, int& budget) {
    const std::vector<int>& operands = step(i).operands;
    for (auto o = operands.rbegin(); o != operands.rend(); ++o) {
      if (*o != cursor || !may_be_inlined(*o)) continue;
      const bool is_leaf = step(*o).operands.empty();
      if (!is_leaf && budget == 0) continue;
      budget -= is_leaf ? 0 : 1;
      inlined_[*o] = 1;
      --cursor;
      take_operands(*o, cursor, budget);
    }
  }

  // The tensors in the order of their first mention, unless that is the program's.
  std::string tensor_order() const {
    bool in_order = true;
    for (size_t i = 0; i < order_.size(); ++i)
      in_order = in_order && order_[i] == static_cast<int>(i);
    if (in_order) return "";
    std::string list;
    for (const TensorDecl& t : program_.tensors)
      list += (list.empty() ? "" : ", ") + quoted_name(t.name);
    return "  tensors(" + list + ")\n";
  }

  std::string statement(int i) {
    const Step& s = step(i);
    if (is_second_member(i) || s.kind == StepKind::split_pair) {
      const std::string value = operand(i, 0).text;
      std::string first = "_";
      std::string second = "_";
      if (is_second_member(i)) {
        first = name(i - 1, "first");
        second = name(i, "second");
      } else {
        (s.which == 0 ? first : second) = name(i, s.which == 0 ? "first" : "second");
      }
      return "  " + first + ", " + second + " = split_pairs(" + value + ", " +
             group_text(s.group, step(s.operands[0]).shape.cols) + ")\n";
    }
    const std::string text = expression(i).text;
    return is_effect(s.kind) ? "  " + text + "\n"
                             : "  " + name(i, base_name(s)) + " = " + text + "\n";
  }

  // A name for a step's value: of the tensor that it is stored in, or of what it is.
  std::string base_name(const Step& s) const {
    const std::string_view own = info(s.kind).value_name;
    return own.empty() ? program_.tensors[s.tensor].name : std::string(own);
  }
  const std::string& name(int i, std::string wanted) {
    for (int j = i + 1; j < count_; ++j) {
      const Step& s = step(j);
      if ((s.kind == StepKind::store_tile || s.kind == StepKind::store_vector) &&
          s.operands[0] == i) {
        wanted = program_.tensors[s.tensor].name;
      }
    }
    wanted = wanted.substr(wanted.rfind('.') + 1);
    if (!is_identifier(wanted) || is_reserved(wanted)) wanted = "v";
    std::string free = wanted;
    for (int suffix = 2; !taken_.insert(free).second; ++suffix)
      free = wanted + "_" + std::to_string(suffix);
    return names_[i] = free;
  }

  Expression operand(int i, size_t index) {
    const int o = step(i).operands[index];
    return inlined_[o] ? expression(o) : Expression{names_[o]};
  }
  // An operand that must bind at least as tightly as `level`.
  std::string operand_text(int i, size_t index, Level level) {
    const Expression e = operand(i, index);
    return e.level < level ? "(" + e.text + ")" : e.text;
  }

  // With its shape (`dims`) and type when it is named for the first time. `implied` is the type it
  // has if none is written.
  std::string tensor(int index, const std::string& dims, DType implied = DType::f32) {
    const TensorDecl& t = program_.tensors[index];
    std::string text = quoted_name(t.name);
    if (mentioned_[index]) return text;
    mentioned_[index] = 1;
    order_.push_back(index);
    text += dims;
    if (t.dtype != implied) text += ":" + std::string(coda::name_of(t.dtype));
    return text;
  }
  std::string shape_of(int index) const { return program_.tensors[index].shape.text(); }

  std::string call(std::string_view function, int i, const std::string& last = "") {
    std::string text(function);
    text += "(";
    for (size_t o = 0; o < step(i).operands.size(); ++o)
      text += (o == 0 ? "" : ", ") + operand(i, o).text;
    return text + (last.empty() ? "" : ", " + last) + ")";
  }

  Expression expression(int i) {
    const Step& s = step(i);
    switch (s.kind) {
      case StepKind::gemm: return {gemm(s)};
      case StepKind::load_tile: return {load_tile(s)};
      case StepKind::load_per_row:
        return {"per_row(" + tensor(s.tensor, "[" + s.shape.rows.text() + "]") + ")"};
      case StepKind::load_per_column:
        return {"per_column(" + tensor(s.tensor, "[" + s.shape.cols.text() + "]") + ")"};
      case StepKind::load_scalar: return {"scalar(" + tensor(s.tensor, "") + ")"};
      case StepKind::constant:
        return {number_text(s.number), std::signbit(s.number) ? Level::unary : Level::primary,
                true};
      case StepKind::column_index: return {"column_index(" + s.shape.cols.text() + ")"};
      case StepKind::elementwise: return elementwise(i);
      case StepKind::split_pair: break;  // a statement, never inside an expression
      case StepKind::merge_pairs:
        return {call("merge_pairs", i, group_text(s.group, s.shape.cols))};
      case StepKind::as_stored: return {call("as_stored", i, std::string(coda::name_of(s.dtype)))};
      case StepKind::reduce_group: return {call("reduce_group", i, s.group.text())};
      case StepKind::repeat_group: return {call("repeat_group", i, s.group.text())};
      case StepKind::select_column: return {call("select_column", i)};
      case StepKind::combine: return {combine(s)};
      case StepKind::reduce_vector: return {call("reduce_vector", i)};
      case StepKind::transpose_vector: return {call("transpose_vector", i)};
      case StepKind::store_tile:
      case StepKind::store_vector: {
        const std::string value = operand(i, 0).text;
        return {"store(" + tensor(s.tensor, "") + ", " + value + ")"};
      }
      case StepKind::row_partial:
      case StepKind::column_partial: {
        const std::string value = operand(i, 0).text;
        return {std::string(name_of(s.kind)) + "(" + tensor(s.tensor, "") + ", " +
                std::string(info(s.partial).name) + "(" + value + "))"};
      }
    }
    throw InternalError("a step has no text");
  }

  std::string gemm(const Step& s) {
    std::string text = "gemm(";
    for (const GemmSegment& segment : s.segments) {
      if (text.back() != '(') text += "; ";
      const Shape& a = program_.tensors[segment.a].shape;
      const Shape& b = program_.tensors[segment.b].shape;
      text += tensor(segment.a, a.text()) + ", ";
      text += tensor(segment.b, b.text());
      // The layout is left out where the operands share one dimension: they can be contracted in
      // one way.
      const int shared =
          (a.rows == b.rows) + (a.rows == b.cols) + (a.cols == b.rows) + (a.cols == b.cols);
      if (shared != 1)
        text += std::string(", ") + (segment.transpose_a ? "t" : "n") +
                (segment.transpose_b ? "t" : "n");
    }
    return text + ")";
  }

  std::string load_tile(const Step& s) {
    std::string text = "tile(" + tensor(s.tensor, shape_of(s.tensor));
    if (s.row_index >= 0) {
      text += ", rows=" + tensor(s.row_index, "[" + s.shape.rows.text() + "]", DType::i32);
    }
    if (s.repeat != 1) text += ", repeat=" + std::to_string(s.repeat);
    return text + ")";
  }

  std::string combine(const Step& s) {
    const bool rows = program_.tensors[s.tensor].kind == TensorKind::row_partial;
    const std::string_view lane = info(s.partial).results[static_cast<size_t>(s.lane)];
    return std::string(rows ? "combine_rows(" : "combine_columns(") +
           std::string(info(s.partial).name) + "(" + tensor(s.tensor, shape_of(s.tensor)) + ")" +
           (lane.empty() ? "" : ", " + std::string(lane)) + ")";
  }

  Expression elementwise(int i) {
    const auto binary = [&](const char* sign, Level level, Level right) {
      const std::string left_text = operand_text(i, 0, level);
      return Expression{left_text + sign + operand_text(i, 1, right), level};
    };
    switch (step(i).op) {
      case Elementwise::add: return binary(" + ", Level::sum, Level::product);
      case Elementwise::sub: return binary(" - ", Level::sum, Level::product);
      case Elementwise::mul: return binary(" * ", Level::product, Level::unary);
      case Elementwise::div: return binary(" / ", Level::product, Level::unary);
      case Elementwise::neg: {
        const Expression e = operand(i, 0);
        if (e.is_number) return {"neg(" + e.text + ")"};
        return {"-" + (e.level < Level::primary ? "(" + e.text + ")" : e.text), Level::unary};
      }
      default: return {call(info(step(i).op).name, i)};
    }
  }

  const Program& program_;
  const int count_;
  std::vector<int> uses_;
  std::vector<char> inlined_;  // written inside the expression that uses it
  std::vector<char> joined_;   // the first member of a pair whose second follows
  std::vector<std::string> names_;
  std::set<std::string> taken_;
  std::vector<char> mentioned_;
  std::vector<int> order_;  // tensors by first mention
};

}  // namespace
}  // namespace coda::program

namespace coda {

std::string text(const Program& program) {
  verify(program);
  return program::Printer(program).print();
}

}  // namespace coda
