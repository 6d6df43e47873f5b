// SPDX-License-Identifier: Apache-2.0
// Reads lines and expressions of text, as programs and graphs share them (docs/program-text.md):
// files, statements, expressions, names of values, and recovery after a mistake. Derived classes
// define what functions mean: the parser of programs, whose values are steps, and the parser of
// graphs, whose values are nodes.
//
// Expressions make their values while they are read, operands first and from left to right. After a
// mistake the rest of the line is skipped and reading continues, so that all mistakes of a text are
// reported at once. Consequences of a mistake are not reported: names that the line would define
// are marked as failed, and a statement that uses one fails silently.
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

  // ---- Implemented by each language. A value is a number that the language chooses, from 0.

  virtual int constant(double number) = 0;
  virtual int elementwise(Elementwise op, std::vector<int> operands) = 0;
  // Reads a function that is not elementwise, after its opening bracket.
  virtual int call(const Token& function) = 0;
  // Whether functions may be quoted, for names that equal another word.
  virtual bool may_be_quoted() const { return false; }
  // Reads a statement that is not a definition: a word and the bracket after it.
  virtual void effect(const Token& word) = 0;
  // Reads, after  a, b =  , a function with several values.
  virtual void define_several(const std::vector<Token>& targets) = 0;
  virtual bool is_reserved(std::string_view name) const = 0;
  // The advice if a value of that name is missing.
  virtual std::string remedy_for(const std::string& name) const = 0;
  // Called for names in a failed statement that are not values.
  virtual void failed_mention(std::string_view) {}
  // Runs `action` for a statement or expression at `place`; exceptions become mistakes at that
  // place.
  virtual int make(Place place, const std::function<int()>& action);

  // ---- Shared by the languages.

  static constexpr int kFailed = -1;  // of a name whose definition is a mistake

  // Thrown if a statement cannot be read because of an earlier mistake.
  struct FollowsFromMistake {};

  // Stops if the text begins with the word of the other language.
  void refuse_other_word(std::string_view word, const std::string& message);
  // Reads the part before the first brace: the word with which files of this language begin, and a
  // name. `otherwise`: the advice for another word.
  std::string header(std::string_view word, const std::string& otherwise);
  // Reads from after the first brace to the end of the text.
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
  std::map<std::string, Place, std::less<>> unread_;  // names that were defined and not used yet

 private:
  void line();
  void end_of_statement();
  void pass_over(size_t start);
  void statement();
  // Checks a name that is defined; `may_be_unwanted`: may be _.
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
