// SPDX-License-Identifier: Apache-2.0
// Random expressions match what std::regex, a backtracking matcher, matches: which alternative
// comes first, lazy quantifiers, counts, look-ahead, and texts of which many places were read
// before.
#include "tokenizer/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "coda/error.h"

namespace coda::tokenizer {
namespace {

using Ends = std::vector<std::pair<size_t, size_t>>;

class Expressions {
 public:
  explicit Expressions(uint32_t seed) : random_(seed) {}

  std::string regex() {
    loops_ = 0;
    return alternatives(1, true);
  }
  // Runs of letters, so that a match may be as long as several blocks of the matcher.
  std::string text() {
    std::string text;
    for (int run = below(6); run >= 0; --run)
      text.append(static_cast<size_t>(1 + below(below(4) == 0 ? 40 : 3)), letter());
    return text;
  }

 private:
  int below(int count) { return static_cast<int>(random_() % static_cast<uint32_t>(count)); }
  char letter() { return "abc"[below(3)]; }
  std::string set() {
    if (below(2) == 0) return {letter()};
    return std::string(below(3) == 0 ? "[^" : "[") + letter() + letter() + "]";
  }
  std::string alternatives(int depth, bool may_repeat) {
    std::string all = sequence(depth, may_repeat);
    for (int i = below(3); i > 0; --i) all += "|" + sequence(depth, may_repeat);
    return all;
  }
  std::string sequence(int depth, bool may_repeat) {
    std::string all;
    for (int i = below(3); i >= 0; --i) {
      const bool is_repeated = may_repeat && below(2) == 0;
      all += depth > 0 && below(4) == 0
                 ? "(?:" + alternatives(depth - 1, may_repeat && !is_repeated) + ")"
                 : set();
      if (is_repeated) all += quantifier();
    }
    if (below(6) == 0) all += (below(2) == 0 ? "(?!" : "(?=") + set() + ")";
    return all;
  }
  std::string quantifier() {
    // More loops would take std::regex too long.
    const int kind = below(loops_ < 2 ? 5 : 2);
    loops_ += kind > 1 ? 1 : 0;
    const char* const kinds[] = {"?", "{1,3}", "*", "+", "{2,}"};
    return std::string(kinds[kind]) + (below(2) == 0 ? "?" : "");
  }

  std::mt19937 random_;
  int loops_ = 0;
};

Ends matches_of(const Pattern& pattern, const std::string& text) {
  Ends ends;
  Matches matches(pattern, text);
  for (Range match; matches.next(match);) ends.emplace_back(match.begin, match.end);
  return ends;
}

Ends expected_of(const std::string& regex, const std::string& text) {
  Ends ends;
  const std::regex compiled(regex);
  for (std::sregex_iterator match(text.begin(), text.end(), compiled), end; match != end; ++match) {
    const auto begin = static_cast<size_t>(match->position());
    ends.emplace_back(begin, begin + static_cast<size_t>(match->length()));
  }
  return ends;
}

TEST(Pattern, MatchesWhatABacktrackingMatcherMatches) {
  int compared = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Expressions expressions(seed);
    const std::string regex = expressions.regex();
    try {
      const Pattern pattern = Pattern::of_regex(regex, "a test");
      for (int i = 0; i < 3; ++i) {
        const std::string text = expressions.text();
        EXPECT_EQ(matches_of(pattern, text), expected_of(regex, text)) << regex << " in " << text;
      }
      ++compared;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("matches the empty string"));
    }
  }
  EXPECT_GT(compared, 100);
}

// The state behind an a and that behind a c reach the same places.
TEST(Pattern, APlaceWithoutAMatchIsRememberedForItsStateAlone) {
  const Pattern pattern = Pattern::of_regex("a[^b]*b|c+d", "a test");
  const std::string text = "a" + std::string(200, 'c') + "d";
  EXPECT_EQ(matches_of(pattern, text), (Ends{{1, 202}}));
}

}  // namespace
}  // namespace coda::tokenizer
