// SPDX-License-Identifier: Apache-2.0
// Lines and expressions of text, as programs and graphs have them alike (docs/program-text.md): how
// a file, a statement and an expression are read, what names values, and how reading goes on behind
// a mistake. What a function means is said by whoever derives from this: the parser of programs,
// whose values are steps, and that of graphs, whose values are nodes.
//
// Expressions make their values as they are read, operands first and from left to right. At a
// mistake the rest of its line is passed over and reading goes on, so that all mistakes of a text
// are told of at once. What follows from one is no second mistake: names that the line gives are
// known as failed, and a statement that needs one fails without a word.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coda/elementwise.h"
#include "coda/partial.h"
#include "program/assembler.h"
#include "program/diagnostics.h"
#include "program/token_reader.h"

namespace coda::program {

class StatementReader : protected TokenReader {
 protected:
  StatementReader(std::string_view text, std::string_view file)
      : TokenReader(text), file_(file), diagnostics_(text) {}
  ~StatementReader() = default;

  // ---- What the words of a language mean. A value is a number that the language chooses, from 0.

  virtual int constant(double number) = 0;
  virtual int elementwise(Elementwise op, std::vector<int> operands) = 0;
  // A function that is not elementwise, behind its opening bracket.
  virtual int call(const Token& function) = 0;
  // Whether a function may stand in quotes, as what has the name of another word does.
  virtual bool may_be_quoted() const { return false; }
  // A statement that is no definition: a word at the bracket behind it.
  virtual void effect(const Token& word) = 0;
  // Behind  a, b =  : a function with several values.
  virtual void define_several(const std::vector<Token>& targets) = 0;
  virtual bool is_reserved(std::string_view name) const = 0;
  // What to do where a value of that name is missing.
  virtual std::string remedy_for(const std::string& name) const = 0;
  // Told of names that stand in a failed statement and are no values.
  virtual void failed_mention(std::string_view) {}
  // Does what makes values, for a statement or a part of one that stands at `place`; what is thrown
  // there is a mistake of that place.
  virtual int make(Place place, const std::function<int()>& action);

  // ---- What is read alike.

  static constexpr int kFailed = -1;  // of a name whose definition is a mistake

  // Thrown where a statement cannot be read because of an earlier mistake.
  struct FollowsFromMistake {};

  // Reads no further where the text begins with the word of the other language.
  void refuse_other_word(std::string_view word, const std::string& message);
  // What stands before the first brace: the word that files of this language begin with, and a
  // name. `otherwise` is what to do where there is another word.
  std::string header(std::string_view word, const std::string& otherwise);
  // From behind the first brace to the end of the text.
  void body();

  int expression();
  std::vector<int> values();  // one or more, with commas between them
  void define(const Token& target, int value);
  TensorMention mention();
  PartialKind partial_kind();
  PairGroup pair_group();

  std::string_view file_;
  Diagnostics diagnostics_;
  Place header_place_;           // of the name behind the first word
  bool is_consequence_ = false;  // a mistake in this statement follows from an earlier one
  std::map<std::string, int, std::less<>> values_;
  std::map<std::string, Place, std::less<>> unread_;  // names that were given and not used yet

 private:
  void line();
  void end_of_statement();
  void pass_over(size_t start);
  void statement();
  // A name that is given; `may_be_unwanted`: or _.
  void check_target(const Token& target, bool may_be_unwanted) const;
  int sum();
  int product();
  int unary();
  int primary();
  int apply(Place place, Elementwise op, std::vector<int> operands);
  int named_value(const std::string& name, Place place);

  int depth_ = 0;
};

}  // namespace coda::program
