// SPDX-License-Identifier: Apache-2.0
#include "ir/elementwise_expression.h"

#include <charconv>
#include <string>

#include "coda/error.h"

namespace coda {
namespace {

// A part of an expression: a number, until it meets a value.
struct Term {
  double number = 0;
  Value value;  // without a graph: a number
};

class ExpressionBuilder {
 public:
  ExpressionBuilder(std::string_view text, const ExpressionNames& names, const Where& where)
      : text_(text), names_(names), where_(where) {}

  Value run() {
    const Term term = sum();
    expect(at_ == text_.size() && term.value.graph != nullptr);
    return term.value;
  }

 private:
  void expect(bool condition) const {
    if (!condition) {
      throw InternalError("the table of elementwise operations has \"" + std::string(text_) +
                          "\", which is no expression from character " + std::to_string(at_));
    }
  }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  char next() {
    skip_spaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    const bool found = next() == c;
    if (found) ++at_;
    return found;
  }

  Term sum() {
    Term left = product();
    for (;;) {
      if (accept('+')) {
        left = apply(Elementwise::add, {left, product()});
      } else if (accept('-')) {
        left = apply(Elementwise::sub, {left, product()});
      } else {
        return left;
      }
    }
  }

  Term product() {
    Term left = factor();
    for (;;) {
      if (accept('*')) {
        left = apply(Elementwise::mul, {left, factor()});
      } else if (accept('/')) {
        left = apply(Elementwise::div, {left, factor()});
      } else {
        return left;
      }
    }
  }

  Term factor() {
    if (accept('(')) {
      const Term inner = sum();
      expect(accept(')'));
      return inner;
    }
    const char c = next();
    return (c >= 'a' && c <= 'z') ? named() : number();
  }

  Term number() {
    Term term;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), term.number);
    expect(error == std::errc());
    at_ += static_cast<size_t>(end - begin);
    skip_spaces();
    return term;
  }

  Term named() {
    const size_t begin = at_;
    while (at_ < text_.size() && ((text_[at_] >= 'a' && text_[at_] <= 'z') || text_[at_] == '_'))
      ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (!accept('(')) return variable(name);
    const auto op = elementwise_by_name(name);
    expect(op.has_value());
    std::vector<Term> operands{sum()};
    while (accept(',')) operands.push_back(sum());
    expect(accept(')') && static_cast<int>(operands.size()) == info(*op).arity);
    return apply(*op, operands);
  }

  Term variable(std::string_view name) {
    skip_spaces();
    expect(name.size() == 1);
    Term term;
    const size_t operand = static_cast<size_t>(name[0] - 'a');
    if (operand < names_.operands.size()) {
      term.value = names_.operands[operand];
    } else if (name == "y") {
      term.value = names_.y;
    } else if (name == "g") {
      term.value = names_.g;
    }
    expect(term.value.graph != nullptr);
    return term;
  }

  Term apply(Elementwise op, const std::vector<Term>& operands) {
    GraphPointer graph;
    for (const Term& operand : operands) {
      if (operand.value.graph != nullptr) graph = operand.value.graph;
    }
    if (graph == nullptr) {
      double x[3] = {0, 0, 0};
      for (size_t i = 0; i < operands.size(); ++i) x[i] = operands[i].number;
      return {info(op).evaluate(x[0], x[1], x[2]), {}};
    }
    std::vector<Value> values;
    for (const Term& operand : operands) {
      values.push_back(operand.value.graph != nullptr ? operand.value
                                                      : graph->constant(operand.number));
    }
    return {0, elementwise(op, std::move(values), where_)};
  }

  std::string_view text_;
  const ExpressionNames& names_;
  const Where& where_;
  size_t at_ = 0;
};

}  // namespace

Value build_expression(std::string_view expression, const ExpressionNames& names, Where where) {
  return ExpressionBuilder(expression, names, where).run();
}

}  // namespace coda
