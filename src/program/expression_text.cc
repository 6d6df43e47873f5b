// SPDX-License-Identifier: Apache-2.0
// Prints with minimal parentheses by comparing precedence levels.
#include "program/expression_text.h"

#include <array>
#include <charconv>
#include <cmath>

namespace coda::program {

std::string number_text(double number) {
  const std::string sign = std::signbit(number) ? "-" : "";
  if (std::isnan(number)) return sign + "nan";
  if (std::isinf(number)) return sign + "inf";
  std::array<char, 32> buffer;
  const auto [stop, problem] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  return std::string(buffer.data(), stop);
}

Expression number_expression(double number) {
  return {number_text(number), std::signbit(number) ? Level::unary : Level::primary, true};
}

std::string text_at(const Expression& expression, Level level) {
  return expression.level < level ? "(" + expression.text + ")" : expression.text;
}

Expression elementwise_expression(Elementwise op, std::span<const Expression> operands) {
  const auto binary = [&](const char* sign, Level level, Level right) {
    return Expression{text_at(operands[0], level) + sign + text_at(operands[1], right), level};
  };
  switch (op) {
    case Elementwise::add: return binary(" + ", Level::sum, Level::product);
    case Elementwise::sub: return binary(" - ", Level::sum, Level::product);
    case Elementwise::mul: return binary(" * ", Level::product, Level::unary);
    case Elementwise::div: return binary(" / ", Level::product, Level::unary);
    case Elementwise::neg:
      if (operands[0].is_number) return {"neg(" + operands[0].text + ")"};
      return {"-" + text_at(operands[0], Level::primary), Level::unary};
    default: {
      std::string text;
      for (const Expression& operand : operands) text += (text.empty() ? "" : ", ") + operand.text;
      return {std::string(info(op).name) + "(" + text + ")"};
    }
  }
}

// The words interleaved and concatenated have priority, so a size symbol with such a name gets a
// factor.
std::string group_text(const Dim& group, const Dim& columns) {
  if (group.is(2)) return "interleaved";
  if (group == columns) return "concatenated";
  const std::string text = group.text();
  return text == "interleaved" || text == "concatenated" ? "1*" + text : text;
}

}  // namespace coda::program
