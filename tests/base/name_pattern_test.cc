// SPDX-License-Identifier: Apache-2.0
#include "base/name_pattern.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <string>

namespace coda {
namespace {

TEST(NamePattern, AStarStandsForAnyLetters) {
  EXPECT_TRUE(is_name_like("model.layers.0.mlp.up_proj.weight", "model.layers.0.*"));
  EXPECT_FALSE(is_name_like("model.layers.10.mlp.up_proj.weight", "model.layers.0.*"));
  EXPECT_TRUE(is_name_like("model.layers.10.mlp.up_proj.weight", "*.up_proj.*"));
  EXPECT_TRUE(is_name_like("w", "w"));
  EXPECT_FALSE(is_name_like("w2", "w"));
  EXPECT_TRUE(is_name_like("", "*"));
  EXPECT_FALSE(is_name_like("w", ""));
}

TEST(NamePattern, IsTheRegularExpressionOfTheSameMeaning) {
  std::mt19937 random(5);
  const auto text = [&](const std::string& letters) {
    std::string made;
    for (uint64_t n = random() % 7; n > 0; --n) made += letters[random() % letters.size()];
    return made;
  };
  int alike = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string name = text("ab");
    const std::string pattern = text("ab**");
    const std::string expression = std::regex_replace(pattern, std::regex("\\*"), ".*");
    const bool expected = std::regex_match(name, std::regex(expression));
    ASSERT_EQ(is_name_like(name, pattern), expected) << name << " and " << pattern;
    alike += expected ? 1 : 0;
  }
  EXPECT_GT(alike, 1000);
}

}  // namespace
}  // namespace coda
