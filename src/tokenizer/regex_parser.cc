// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <optional>

#include "coda/error.h"
#include "coda/messages.h"
#include "tokenizer/regex_tree.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace coda::tokenizer {
namespace {

using Kind = RegexNode::Kind;

constexpr int kMostRepeats = 1000;
constexpr int kDeepest = 100;  // nesting depth of groups and classes

RegexNode node_of(PointSet set) { return {.kind = Kind::set, .set = std::move(set), .parts = {}}; }

bool is_letter(uint32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool may_be_empty(const RegexNode& node) {
  switch (node.kind) {
    case Kind::set: return false;
    case Kind::look_ahead: return true;
    case Kind::repeat: return node.least == 0 || may_be_empty(node.parts[0]);
    case Kind::choice:
      for (const RegexNode& part : node.parts)
        if (may_be_empty(part)) return true;
      return false;
    case Kind::sequence:
      for (const RegexNode& part : node.parts)
        if (!may_be_empty(part)) return false;
      return true;
  }
  return true;
}

class Parser {
 public:
  Parser(std::string_view regex, const std::string& source) : whole_(regex), source_(source) {
    rest_ = regex;
  }

  RegexNode parse() {
    if (rest_.starts_with("(?i)")) {
      rest_.remove_prefix(4);
      ignores_case_ = true;
    }
    RegexNode node = choice();
    if (!rest_.empty()) refuse("a ')' that nothing opens");
    return node;
  }

 private:
  [[noreturn]] void refuse(const std::string& part) const {
    throw Error(source_ + ": the regular expression " + in_quotes(whole_) + " has " + part +
                ", which is not supported (give token ids made with Python's tokenizers)");
  }

  bool takes(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  uint32_t next_point() {
    const uint32_t point = code_point(rest_);
    rest_.remove_prefix(length_of(rest_[0]));
    return point;
  }

  RegexNode choice() {
    if (++depth_ > kDeepest) refuse("too many nested groups");
    RegexNode node{.kind = Kind::choice, .set = {}, .parts = {}};
    do node.parts.push_back(sequence());
    while (takes("|"));
    --depth_;
    if (node.parts.size() > 1) return node;
    RegexNode only = std::move(node.parts[0]);
    return only;
  }

  RegexNode sequence() {
    RegexNode node;
    uint32_t before = 0;  // the previous atom if it is a literal character
    while (!rest_.empty() && rest_[0] != '|' && rest_[0] != ')') {
      uint32_t letter = 0;
      RegexNode part = atom(letter);
      if (ignores_case_) refuse_joined_letters(before, letter);
      before = letter;
      node.parts.push_back(repeated(std::move(part)));
    }
    if (node.parts.size() == 1) {
      RegexNode only = std::move(node.parts[0]);
      return only;
    }
    return node;
  }

  // If case is ignored, Oniguruma lets one character match two letters: \xDF matches ss.
  void refuse_joined_letters(uint32_t before, uint32_t letter) const {
    const std::string pair{static_cast<char>(before | 0x20), static_cast<char>(letter | 0x20)};
    if (!is_letter(before) || !is_letter(letter)) return;
    for (const char* joined : {"ss", "st", "ff", "fi", "fl"})
      if (pair == joined) refuse("the letters " + pair + " while case is ignored");
  }

  // Parses one item that may have a repeat count; sets `letter` if the item is a literal character.
  RegexNode atom(uint32_t& letter) {
    if (takes("(")) return group();
    if (takes("[")) return node_of(bracket());
    if (takes(".")) return node_of(PointSet::point('\n').complement());
    if (rest_[0] == '\\') {
      std::optional<uint32_t> point;
      PointSet set = escape(point);
      if (point) letter = *point;
      return node_of(std::move(set));
    }
    if (takes("$"))  // matches before the end of a line, or at the end of the text
      return {.kind = Kind::look_ahead,
              .set = PointSet::point('\n').complement(),
              .parts = {},
              .is_negative = true};
    if (std::string_view("^*+?").find(rest_[0]) != std::string_view::npos)
      refuse(in_quotes(rest_.substr(0, 1)));
    letter = next_point();
    return node_of(in_either_case(PointSet::point(letter)));
  }

  RegexNode group() {
    const bool outer = ignores_case_;
    bool looks = false, is_negative = false;
    if (takes("?")) {
      if (takes("i:")) {
        ignores_case_ = true;
      } else if (takes("-i:")) {
        ignores_case_ = false;
      } else if (takes("=")) {
        looks = true;
      } else if (takes("!")) {
        looks = is_negative = true;
      } else if (rest_.starts_with("<") && !rest_.starts_with("<=") && !rest_.starts_with("<!")) {
        const size_t end = rest_.find('>');
        if (end == std::string_view::npos) refuse("a '<' that is not closed");
        rest_.remove_prefix(end + 1);
      } else if (!takes(":")) {
        refuse("a '(?" + std::string(rest_.substr(0, 2)) + "'");
      }
    } else if (rest_.starts_with("*")) {
      refuse("a '(*'");
    }
    RegexNode node = choice();
    if (!takes(")")) refuse("a '(' that is not closed");
    ignores_case_ = outer;
    if (!looks) return node;
    return {
        .kind = Kind::look_ahead, .set = one_point(node), .parts = {}, .is_negative = is_negative};
  }

  PointSet one_point(const RegexNode& node) const {
    if (node.kind == Kind::set) return node.set;
    if (node.kind != Kind::choice) refuse("a lookahead that is not one character long");
    PointSet all;
    for (const RegexNode& part : node.parts) all = all | one_point(part);
    return all;
  }

  RegexNode repeated(RegexNode node) {
    while (!rest_.empty()) {
      int least = 0, most = -1;
      bool is_interval = false;
      if (takes("+")) {
        least = 1;
      } else if (takes("?")) {
        most = 1;
      } else if (!takes("*")) {
        if (!interval(least, most)) break;
        is_interval = true;
      }
      if (may_be_empty(node)) refuse("a repeat of an expression that may match the empty string");
      const bool is_lazy = takes("?");
      if (is_lazy && is_interval && least == most) refuse("a '?' after '{n}'");
      const bool is_possessive = !is_interval && !is_lazy && takes("+");
      if (is_possessive && node.kind != Kind::set)
        refuse("a possessive repeat of more than one character");
      const PointSet set = node.set;
      RegexNode outer{.kind = Kind::repeat,
                      .set = {},
                      .parts = {},
                      .least = least,
                      .most = most,
                      .is_lazy = is_lazy};
      outer.parts.push_back(std::move(node));
      node = std::move(outer);
      if (is_possessive) node = possessive(std::move(node), set);
    }
    return node;
  }

  // Possessive repeats never backtrack: 'x?+' takes an x if there is one, and no x may follow
  // 'x++'.
  static RegexNode possessive(RegexNode node, const PointSet& set) {
    const RegexNode no_more{.kind = Kind::look_ahead, .set = set, .parts = {}, .is_negative = true};
    RegexNode result;
    if (node.most == 1) {
      result.kind = Kind::choice;
      result.parts = {std::move(node.parts[0]), no_more};
    } else {
      result.parts = {std::move(node), no_more};
    }
    return result;
  }

  // Parses {2}, {2,}, {,3} or {2,3}. Any other text after '{' is literal.
  bool interval(int& least, int& most) {
    if (!rest_.starts_with("{")) return false;
    const size_t end = rest_.find('}');
    if (end == std::string_view::npos) return false;
    const std::string_view inner = rest_.substr(1, end - 1);
    const size_t comma = inner.find(',');
    const auto number = [&](std::string_view text, int& value) {
      if (text.empty()) return true;
      const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      return error == std::errc() && stop == text.data() + text.size() && text[0] != '-';
    };
    least = 0;
    most = -1;
    if (inner.empty() || inner == ",") return false;
    if (!number(inner.substr(0, comma), least)) return false;
    if (comma == std::string_view::npos) {
      most = least;
    } else if (!number(inner.substr(comma + 1), most)) {
      return false;
    }
    if (least > kMostRepeats || most > kMostRepeats || (most >= 0 && most < least) || most == 0)
      refuse("the count " + std::string(rest_.substr(0, end + 1)));
    rest_.remove_prefix(end + 1);
    return true;
  }

  // Parses an escape: a set, or a single code point, which is also stored in `point`.
  PointSet escape(std::optional<uint32_t>& point) {
    rest_.remove_prefix(1);
    if (rest_.empty()) refuse("a '\\' at its end");
    const uint32_t c = next_point();
    const auto named = [](const char* name) { return *points_with(name); };
    switch (c) {
      case 's': return named("space");
      case 'S': return named("space").complement();
      case 'd': return named("nd");
      case 'D': return named("nd").complement();
      case 'w': return named("word");
      case 'W': return named("word").complement();
      case 'h': return named("xdigit");
      case 'H': return named("xdigit").complement();
      case 'p': return property(false);
      case 'P': return property(true);
      case 't': point = '\t'; break;
      case 'n': point = '\n'; break;
      case 'r': point = '\r'; break;
      case 'f': point = '\f'; break;
      case 'v': point = '\v'; break;
      case 'a': point = '\a'; break;
      case 'e': point = 0x1B; break;
      case 'x': point = takes("{") ? number(8, "}") : number(2, ""); break;
      case 'u': point = number(4, ""); break;
      default:
        if (is_letter(c) || (c >= '0' && c <= '9')) refuse("'\\" + utf8(c) + "'");
        point = c;
    }
    return in_either_case(PointSet::point(*point));
  }

  uint32_t number(size_t most_digits, std::string_view end) {
    uint32_t value = 0;
    const size_t most = std::min(most_digits, rest_.size());
    const auto [stop, error] = std::from_chars(rest_.data(), rest_.data() + most, value, 16);
    const auto digits = static_cast<size_t>(stop - rest_.data());
    const bool is_short = end.empty() && (digits != most_digits || (digits == 2 && value > 0x7F));
    rest_.remove_prefix(digits);
    if (error != std::errc() || is_short || value >= kCodePoints || !takes(end))
      refuse("a number that is not a code point");
    return value;
  }

  PointSet property(bool is_outside) {
    if (!takes("{")) refuse("a '\\p' without '{'");
    const size_t end = rest_.find('}');
    if (end == std::string_view::npos) refuse("a '{' that is not closed");
    if (takes("^")) is_outside = !is_outside;
    const std::string_view name = rest_.substr(0, rest_.find('}'));
    const std::optional<PointSet> set = points_with(name);
    if (!set) refuse("the property " + in_quotes(name));
    rest_.remove_prefix(name.size() + 1);
    if (ignores_case_) require_either_case(*set);
    return is_outside ? set->complement() : *set;
  }

  // Parses a class after its '['.
  PointSet bracket() {
    if (++depth_ > kDeepest) refuse("too many nested classes");
    const bool is_outside = takes("^");
    if (rest_.starts_with("]")) refuse("an empty class '[]'");
    PointSet all;
    std::optional<PointSet> others;  // the intersection of the operands before the last '&&'
    while (!takes("]")) {
      if (rest_.empty()) refuse("a '[' that is not closed");
      if (takes("&&")) {
        others = others ? *others & all : all;
        all = {};
      } else {
        all = all | class_item();
      }
    }
    if (others) all = *others & all;
    --depth_;
    return is_outside ? all.complement() : all;
  }

  PointSet class_item() {
    if (takes("[:")) return posix_class();
    if (takes("[")) return bracket();
    std::optional<uint32_t> first;
    if (rest_[0] == '\\') {
      PointSet set = escape(first);
      if (!first) {
        if (rest_.starts_with("-") && !rest_.starts_with("-]"))
          refuse("a range that starts with a class");
        return set;
      }
    } else {
      first = next_point();
    }
    if (!rest_.starts_with("-") || rest_.starts_with("-]") || rest_.starts_with("-&&"))
      return in_either_case(PointSet::point(*first));
    rest_.remove_prefix(1);
    if (rest_.empty()) refuse("a '[' that is not closed");
    std::optional<uint32_t> last;
    if (rest_[0] == '\\') {
      escape(last);
    } else if (rest_[0] != '[') {
      last = next_point();
    }
    if (!last || *last < *first) refuse("a range that ends before it starts");
    return in_either_case(PointSet::range(*first, *last));
  }

  PointSet posix_class() {
    const bool is_outside = takes("^");
    const size_t end = rest_.find(":]");
    const std::string_view name = rest_.substr(0, end);
    // The other classes, such as [:punct:], contain more than the properties of the same names.
    for (const char* known : {"alpha", "alnum", "digit", "lower", "upper", "space", "xdigit"}) {
      if (name != known || end == std::string_view::npos) continue;
      rest_.remove_prefix(end + 2);
      const PointSet set = *points_with(name);
      if (ignores_case_) require_either_case(set);
      return is_outside ? set.complement() : set;
    }
    refuse("the class '[:" + std::string(name.substr(0, 12)) + "'");
  }

  // Adds the other case of ASCII letters. Two other characters have ASCII letters as their other
  // case: \u017F (s) and \u212A (K).
  PointSet in_either_case(PointSet set) const {
    if (!ignores_case_) return set;
    PointSet all = set;
    for (uint32_t lower = 'a'; lower <= 'z'; ++lower) {
      PointSet either = PointSet::point(lower) | PointSet::point(lower - 'a' + 'A');
      if (lower == 's') either = either | PointSet::point(0x17F);
      if (lower == 'k') either = either | PointSet::point(0x212A);
      if (!(set & either).empty()) all = all | either;
    }
    require_either_case(all);
    return all;
  }

  // Refuses a set that contains some but not all of the other letters with case.
  void require_either_case(const PointSet& set) const {
    const PointSet others = PointSet::range(0x80, kCodePoints - 1) &
                            (PointSet::point(0x17F) | PointSet::point(0x212A)).complement();
    for (const PointSet& cased :
         {*points_with("lc"), *points_with("nl"), *points_with("so"), *points_with("mn")}) {
      const PointSet both = set & cased & others;
      if (!both.empty() && both != (cased & others))
        refuse("letters outside ASCII while case is ignored");
    }
    const PointSet ascii = *points_with("lc") & PointSet::range(0, 0x7F);
    const PointSet some = set & ascii;
    if (!(set & *points_with("lc") & others).empty() && some != ascii)
      refuse("letters outside ASCII while case is ignored");
  }

  std::string_view whole_;
  std::string_view rest_;
  const std::string& source_;
  bool ignores_case_ = false;
  int depth_ = 0;
};

}  // namespace

RegexNode parse_regex(std::string_view regex, const std::string& source) {
  return Parser(regex, source).parse();
}

}  // namespace coda::tokenizer
