// SPDX-License-Identifier: Apache-2.0
// Prints a program. A step whose value is used once, by the next step in operand order, is printed
// inside that step's expression. So the parser makes the same steps in the same order, and
// parse_program(text(p)) == p.
#include <array>
#include <map>
#include <set>

#include "coda/error.h"
#include "program/assembler.h"
#include "program/expression_text.h"
#include "program/problem.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

constexpr int kMaxInlined = 6;  // operations in one expression; more are hard to read

class Printer {
 public:
  explicit Printer(const Program& program)
      : program_(program),
        count_(static_cast<int>(program.steps.size())),
        uses_(program.steps.size(), 0),
        inlined_(program.steps.size(), 0),
        joined_(program.steps.size(), 0),
        names_(program.steps.size()),
        mentioned_(program.tensors.size(), 0) {
    // A tensor that only GEMMs read is not a value, so no value may take its name.
    std::vector<char> is_value(program.tensors.size(), 0);
    for (const Step& s : program.steps) {
      if (s.tensor() >= 0) is_value[static_cast<size_t>(s.tensor())] = 1;
    }
    for (size_t t = 0; t < is_value.size(); ++t) {
      if (is_value[t] == 0) taken_.insert(program.tensors[t].name);
    }
  }

  std::string print() {
    for (const Step& s : program_.steps) {
      for (int operand : s.operands) ++uses_[operand];
    }
    find_statements();
    std::string body;
    for (int i = 0; i < count_; ++i) {
      if (!inlined_[i] && !joined_[i]) body += statement(i);
    }
    return "program " + quoted_name(program_.name) + " {\n" + tensor_order() + constants() + body +
           "}\n";
  }

 private:
  const Step& step(int i) const { return program_.steps[i]; }

  // Both members of a pair are one statement if they are adjacent; it is printed at the second
  // member.
  bool is_second_member(int i) const {
    return i > 0 && splits_pairs(step(i)) && step(i).which() == 1 && splits_pairs(step(i - 1)) &&
           step(i - 1).which() == 0 && step(i).operands == step(i - 1).operands &&
           step(i).group() == step(i - 1).group();
  }

  bool may_be_inlined(int i) const { return uses_[i] == 1 && !is_statement(step(i)); }

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

  // The order of the tensors, if it differs from the order of first mention.
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

  std::string constants() const {
    std::string list;
    for (const TensorDecl& t : program_.tensors) {
      if (t.is_constant) list += (list.empty() ? "" : ", ") + quoted_name(t.name);
    }
    return list.empty() ? "" : "  constants(" + list + ")\n";
  }

  std::string statement(int i) {
    const Step& s = step(i);
    if (splits_pairs(s)) {
      const std::string text = call(i);
      std::array<std::string, 2> members = {"_", "_"};
      if (is_second_member(i)) members[0] = name(i - 1, "first");
      members[static_cast<size_t>(s.which())] = name(i, s.which() == 0 ? "first" : "second");
      return "  " + members[0] + ", " + members[1] + " = " + text + "\n";
    }
    const std::string text = expression(i).text;
    return is_effect(s) ? "  " + text + "\n" : "  " + name(i, base_name(s)) + " = " + text + "\n";
  }

  // A name for a step's value: after the tensor that stores it, or after its kind.
  std::string base_name(const Step& s) const {
    return s.tensor() >= 0 ? program_.tensors[s.tensor()].name
                           : std::string(info(s.kind()).value_name);
  }
  const std::string& name(int i, std::string wanted) {
    for (int j = i + 1; j < count_; ++j) {
      const Step& s = step(j);
      if ((is_tile_store(s) || is_vector_store(s)) && s.operands[0] == i) {
        wanted = program_.tensors[s.tensor()].name;
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
  // A tensor's name, with its shape (`dims`) and type at the first mention. `implied`: the type
  // that need not be written.
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

  Expression expression(int i) {
    const Step& s = step(i);
    if (is_elementwise(s)) return elementwise(i);
    if (!is_constant(s)) return {call(i)};
    return number_expression(s.number());
  }

  // The call, as the kind's table row describes. Operands first, because an expression may be the
  // first to name a tensor.
  std::string call(int i) {
    const Step& s = step(i);
    const StepInfo& kind = info(s.kind());
    std::vector<std::string> operands;
    for (size_t o = 0; o < s.operands.size(); ++o) operands.push_back(operand(i, o).text);
    const bool is_second =
        is_combination(s) && program_.tensors[s.tensor()].kind != TensorKind::row_partial;
    std::string text(kind.words[is_second ? 1 : 0]);
    text += "(";
    size_t next = 0;
    for (const Argument argument : kind.arguments) {
      std::string part;
      const bool takes_operand = argument == Argument::value || argument == Argument::reduction;
      part = argument_text(argument, s, takes_operand ? operands[next++] : "");
      if (!part.empty()) text += (text.back() == '(' ? "" : ", ") + part;
    }
    return text + ")";
  }

  std::string argument_text(Argument argument, const Step& s, const std::string& operand) {
    const auto of_kind = [&](const std::string& what) {
      return std::string(info(s.partial()).name) + "(" + what + ")";
    };
    switch (argument) {
      case Argument::none: return "";
      case Argument::value: return operand;
      case Argument::segments: return segments(s);
      case Argument::tile: return tensor(s.tensor(), shape_of(s.tensor()));
      case Argument::tile_options: return tile_options(s);
      case Argument::per_row: return tensor(s.tensor(), "[" + s.shape.rows.text() + "]");
      case Argument::per_column:
        return tensor(s.tensor(), "[" + program_.tensors[s.tensor()].shape.cols.text() + "]");
      case Argument::repeat: return repeat_text(s);
      case Argument::scalar:
      case Argument::target:
      case Argument::transposed_target:
      case Argument::scalar_target: return tensor(s.tensor(), "");
      case Argument::columns: return s.shape.cols.text();
      case Argument::size: return s.size().text();
      case Argument::pair_group: {
        const Dim& columns = step(s.operands[0]).shape.cols;
        return group_text(s.group(), static_cast<int64_t>(s.operands.size()) * columns);
      }
      case Argument::group: return s.group().text();
      case Argument::dtype: return std::string(coda::name_of(s.dtype()));
      case Argument::partial: return of_kind(tensor(s.tensor(), shape_of(s.tensor())));
      case Argument::result: {
        const PartialInfo& kind = info(s.partial());
        return std::string(s.lane() == kBothResults ? kind.both
                                                    : kind.results[static_cast<size_t>(s.lane())]);
      }
      case Argument::reduction: return of_kind(operand);
    }
    throw InternalError("a step has no text");
  }

  std::string segments(const Step& s) {
    std::string text;
    for (const GemmSegment& segment : s.segments()) {
      if (!text.empty()) text += "; ";
      const Shape& a = program_.tensors[segment.a].shape;
      const Shape& b = program_.tensors[segment.b].shape;
      text += operand_text(segment.a, segment.scales_a) + ", ";
      text += operand_text(segment.b, segment.scales_b);
      // The layout is omitted if the operands share exactly one dimension, which must be the
      // contraction.
      const int shared =
          (a.rows == b.rows) + (a.rows == b.cols) + (a.cols == b.rows) + (a.cols == b.cols);
      if (shared != 1)
        text += std::string(", ") + (segment.transpose_a ? "t" : "n") +
                (segment.transpose_b ? "t" : "n");
    }
    return text;
  }

  std::string operand_text(int operand, int scales) {
    std::string text = tensor(operand, shape_of(operand));
    if (scales < 0) return text;
    return "scaled(" + text + ", " + tensor(scales, shape_of(scales)) + ")";
  }

  static std::string repeat_text(const Step& s) {
    return s.repeat().is(1) ? "" : "repeat=" + s.repeat().text();
  }

  std::string tile_options(const Step& s) {
    std::string text;
    if (s.row_index() >= 0)
      text = "rows=" + tensor(s.row_index(), "[" + s.shape.rows.text() + "]", DType::i32);
    const std::string repeat = repeat_text(s);
    return text + (text.empty() || repeat.empty() ? "" : ", ") + repeat;
  }

  Expression elementwise(int i) {
    std::vector<Expression> operands;
    for (size_t o = 0; o < step(i).operands.size(); ++o) operands.push_back(operand(i, o));
    return elementwise_expression(step(i).op(), operands);
  }

  const Program& program_;
  const int count_;
  std::vector<int> uses_;
  std::vector<char> inlined_;  // printed inside the expression that uses it
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
