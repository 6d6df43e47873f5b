// SPDX-License-Identifier: Apache-2.0
// Works on tokens: only the text between two tokens (blanks, line ends, comments) changes, never
// the program.
#include "coda/program_format.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "coda/error.h"
#include "coda/program_file.h"
#include "program/layout.h"
#include "program/lexer.h"
#include "program/vocabulary.h"

namespace coda {
namespace program {
namespace {

constexpr size_t kColumns = 100;

bool is_sign(const Token& token, std::string_view signs) {
  return token.kind == TokenKind::sign && signs.find(token.text) != std::string_view::npos;
}
bool is_operator(const Token& token) {
  return token.kind == TokenKind::sign &&
         std::string_view("()[]{},;:=").find(token.text) == std::string_view::npos;
}
// As written: a name keeps its quotes.
std::string_view written(std::string_view text, const Token& token) {
  return text.substr(token.offset, token.text.size() + (token.kind == TokenKind::name ? 2 : 0));
}

// The line or lines of one statement.
class StatementLayout {
 public:
  StatementLayout(std::string_view text, const std::vector<Token>& tokens, IsSize is_size)
      : text_(text), tokens_(tokens), is_size_(is_size) {}

  std::string run() {
    for (size_t i = 0; i < tokens_.size(); ++i) add(i);
    return result_ + line_;
  }

 private:
  // An open bracket: arguments of a function, or (without a kind) a size or part of an expression.
  struct Open {
    std::string_view function{};
    bool is_size = false;
    size_t argument = 0;
    bool is_option = false;  // after repeat=
  };
  // A possible line break and its cost. The cost grows with the number of open brackets, and is
  // higher at operators than between arguments.
  struct Break {
    size_t at;
    size_t cost;
  };

  void add(size_t i) {
    const Token& token = tokens_[i];
    if (is_sign(token, ")]") && !open_.empty()) open_.pop_back();
    const bool is_unary = token.text == "-" && is_operator(token) && begins_operand(i);
    if (i > 0 && has_space(i)) line_ += ' ';
    line_ += written(text_, token);
    if (line_.size() > kColumns) break_line();
    if (is_sign(token, "([")) {
      const bool is_call = token.text == "(" && i > 0 && tokens_[i - 1].kind == TokenKind::word;
      open_.push_back({.function = is_call ? tokens_[i - 1].text : std::string_view(),
                       .is_size = token.text == "["});
    } else if (is_sign(token, ",;") && !open_.empty()) {
      ++open_.back().argument;
      open_.back().is_option = false;
      breaks_.push_back({line_.size(), 2 * open_.size()});
    } else if (is_sign(token, "=") && !open_.empty()) {
      open_.back().is_option = true;
    } else if (is_operator(token) && !is_unary && !open_.empty() && !in_size()) {
      breaks_.push_back({line_.size(), 2 * open_.size() + 1});
    }
    follows_unary_ = is_unary;
  }

  // A minus here has no left operand.
  bool begins_operand(size_t i) const {
    return i == 0 || is_operator(tokens_[i - 1]) || is_sign(tokens_[i - 1], "([,;=");
  }

  bool in_size() const {
    if (open_.empty()) return false;
    const Open& inner = open_.back();
    return inner.is_size || inner.is_option || is_size_(inner.function, inner.argument);
  }

  bool has_space(size_t i) const {
    const Token& before = tokens_[i - 1];
    const Token& token = tokens_[i];
    if (is_sign(token, ",;)]:") || is_sign(before, "([:") || follows_unary_) return false;
    if (is_sign(token, "(["))
      return before.kind != TokenKind::word && before.kind != TokenKind::name;
    if (!open_.empty() && (is_sign(token, "=") || is_sign(before, "="))) return false;
    const bool is_factor = is_sign(token, "*") || is_sign(before, "*");
    return !(is_factor && in_size());
  }

  // Breaks at the cheapest place, of equal places at the last. A line without one stays long.
  void break_line() {
    const auto best = std::min_element(breaks_.rbegin(), breaks_.rend(),
                                       [](auto& a, auto& b) { return a.cost < b.cost; });
    if (best == breaks_.rend()) return;
    constexpr std::string_view kIndent = "      ";
    const size_t at = best->at;
    result_ += line_.substr(0, at) + "\n";
    size_t rest = at;
    while (rest < line_.size() && line_[rest] == ' ') ++rest;
    line_ = std::string(kIndent) + line_.substr(rest);
    std::erase_if(breaks_, [&](const Break& other) { return other.at <= at; });
    for (Break& other : breaks_) other.at = other.at - rest + kIndent.size();
  }

  std::string_view text_;
  const std::vector<Token>& tokens_;
  IsSize is_size_;
  std::vector<Open> open_;
  std::vector<Break> breaks_;
  std::string result_;
  std::string line_ = "  ";
  bool follows_unary_ = false;
};

class Formatter {
 public:
  Formatter(std::string_view text, IsSize is_size) : text_(text), is_size_(is_size) {}

  std::string run() {
    size_t end = 0;
    for (const Token& token : tokens_of(text_)) {
      comments(text_.substr(end, token.offset - end));
      end = token.offset + written(text_, token).size();
      add(token);
    }
    std::string result;
    for (const std::string& line : lines_) result += line + "\n";
    return result;
  }

 private:
  void add(const Token& token) {
    if (token.kind == TokenKind::end) return;
    if (token.kind == TokenKind::line_end) {
      if (is_inside_ && !statement_.empty()) end_statement();
      if (!has_content_) is_blank_ = true;
      has_content_ = false;
      return;
    }
    has_content_ = true;
    statement_.push_back(token);
    if (!is_inside_ && token.text == "{" && token.kind == TokenKind::sign) {
      std::string header;
      for (const Token& t : statement_)
        header += (header.empty() ? "" : " ") + std::string(written(text_, t));
      statement_.clear();
      write(header);
      is_inside_ = is_first_ = true;
    } else if (is_inside_ && is_sign(token, "}")) {
      statement_.pop_back();
      if (!statement_.empty()) end_statement();
      is_inside_ = is_blank_ = false;
      write("}");
    }
  }

  void end_statement() {
    std::string lines = StatementLayout(text_, statement_, is_size_).run();
    if (!trailing_.empty()) lines += "  " + trailing_;
    write(lines);
    statement_.clear();
    trailing_.clear();
  }

  // The comments between two tokens.
  void comments(std::string_view gap) {
    size_t at = 0;
    bool is_own_line = false;
    while ((at = gap.find_first_of("#\n", at)) != std::string_view::npos) {
      if (gap[at] == '\n') {
        is_own_line = true;
        ++at;
        continue;
      }
      const size_t stop = std::min(gap.find('\n', at), gap.size());
      std::string comment(gap.substr(at, stop - at));
      comment.resize(comment.find_last_not_of(" \t\r") + 1);
      at = stop;
      if (!has_content_ || (is_own_line && statement_.empty())) {
        write((is_inside_ ? "  " : "") + comment);
      } else if (statement_.empty()) {
        lines_.back() += "  " + comment;
      } else if (stop == gap.size() && !is_own_line && trailing_.empty()) {
        trailing_ = comment;
      } else {
        write("  " + comment);
      }
      has_content_ = true;
    }
  }

  // After a blank line if there was one, except at the start of the text or of a program.
  void write(const std::string& line) {
    if (is_blank_ && !is_first_) lines_.emplace_back();
    is_blank_ = is_first_ = false;
    lines_.push_back(line);
  }

  std::string_view text_;
  IsSize is_size_;
  std::vector<std::string> lines_;
  std::vector<Token> statement_;
  std::string trailing_;
  bool is_inside_ = false;    // inside a program's braces
  bool has_content_ = false;  // of the current input line
  bool is_blank_ = false;     // a line without content was skipped
  bool is_first_ = true;      // nothing was written except a program's opening line
};

// Of a step's words; other functions have values only.
bool is_size_of_step(std::string_view function, size_t argument) {
  const auto kind = function.empty() ? std::nullopt : step_by_word(function);
  if (!kind || argument >= info(*kind).arguments.size()) return false;
  const Argument what = info(*kind).arguments[argument];
  return what == Argument::columns || what == Argument::size || what == Argument::pair_group ||
         what == Argument::group;
}

}  // namespace

std::string formatted(std::string_view text, IsSize is_size) {
  return Formatter(text, is_size).run();
}

}  // namespace program

std::string format_program(std::string_view text, std::string_view file) {
  const std::vector<Program> programs = parse_programs(text, file);
  std::string result = program::formatted(text, program::is_size_of_step);
  invariant(parse_programs(result) == programs, "a layout changed a program");
  return result;
}

}  // namespace coda
