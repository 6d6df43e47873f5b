// SPDX-License-Identifier: Apache-2.0
// Lists of exchanges laid beside each other.
#include "collective/exchange_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace coda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ExchangeLog, IsLevelOnceAllHaveAnnouncedWhatRank0Has) {
  ExchangeLog log(3);
  EXPECT_TRUE(log.is_level());
  log.add_own(entry_of("a"));
  EXPECT_FALSE(log.is_level());
  log.add(1, entry_of("a"));
  log.add(1, entry_of("b"));  // ahead
  EXPECT_FALSE(log.is_level());
  log.add(2, entry_of("a"));
  EXPECT_TRUE(log.is_level());
  EXPECT_FALSE(log.difference());
}

TEST(ExchangeLog, FindsTheFirstDifferenceWhoeverIsAhead) {
  for (const bool is_own_first : {true, false}) {
    ExchangeLog log(3);
    const auto own = [&] {
      for (const char* what : {"a", "b", "c"}) log.add_own(entry_of(what));
    };
    if (is_own_first) own();
    for (const char* what : {"a", "b", "c"}) log.add(1, entry_of(what));
    for (const char* what : {"a", "x", "y"}) log.add(2, entry_of(what));
    if (!is_own_first) own();
    ASSERT_TRUE(log.difference());
    EXPECT_EQ(log.difference()->rank, 2);
    EXPECT_THAT(log.difference()->text,
                HasSubstr(" is out of step: its exchange 2 is x, and rank 0's is b"));
  }
}

TEST(ExchangeLog, OneThatLeavesBeforeRank0IsOutOfStep) {
  ExchangeLog log(2);
  log.add_own(entry_of("a"));
  log.add(1, entry_of("a"));
  log.leave(1);
  EXPECT_FALSE(log.difference());  // rank 0 may leave now
  log.add_own(entry_of("b"));
  ASSERT_TRUE(log.difference());
  EXPECT_THAT(log.difference()->text,
              HasSubstr(" has left after its exchange 1, and rank 0 goes on with b"));
}

std::string difference_of(const Settings& theirs, const Settings& own) {
  ExchangeLog log(2);
  log.add_own(entry_of(own));
  log.add(1, entry_of(theirs));
  return log.difference() ? log.difference()->text : "";
}

TEST(ExchangeLog, NamesTheSettingThatDiffers) {
  const Settings own{{"--lr", "0.1"}, {"--seed", "1"}, {"--init", ""}};
  EXPECT_EQ(difference_of(own, own), "");
  EXPECT_THAT(difference_of({{"--lr", "0.1"}, {"--seed", "2"}, {"--init", ""}}, own),
              AllOf(HasSubstr(" has --seed '2' and rank 0 has '1': all processes need the same"),
                    Not(HasSubstr("--lr"))));
  EXPECT_THAT(difference_of({{"--lr", "0.1"}, {"--seed", "1"}, {"--init", "given"}}, own),
              HasSubstr(" has --init 'given' and rank 0 has none"));
  EXPECT_THAT(difference_of({{"--lr", "0.1"}}, own), HasSubstr(" has other settings than rank 0"));
  EXPECT_THAT(difference_of({{"--rate", "0.1"}, {"--seed", "1"}, {"--init", ""}}, own),
              HasSubstr(" has other settings than rank 0"));
}

// The end counts too, of a value and of a list.
TEST(ExchangeLog, ComparesLongSettingsWhole) {
  const std::string value(5000, 'a');
  EXPECT_EQ(difference_of({{"--prompt", value}}, {{"--prompt", value}}), "");
  const std::string text = difference_of({{"--prompt", value + "b"}}, {{"--prompt", value + "c"}});
  EXPECT_THAT(text, HasSubstr("--prompt 'aaaa"));
  EXPECT_LT(text.size(), 500u);
  Settings many;
  for (int i = 0; i < 3000; ++i) many.push_back({"setting " + std::to_string(i), "some value"});
  Settings others = many;
  EXPECT_EQ(difference_of(others, many), "");
  others.back().value = "another";
  EXPECT_NE(difference_of(others, many), "");
}

TEST(ExchangeLog, OutOfStepInAComparisonOfSettingsIsSaid) {
  ExchangeLog log(2);
  log.add_own(entry_of(Settings{{"a", "b"}}));
  log.add(1, entry_of("all_gather of 12 fp32"));
  ASSERT_TRUE(log.difference());
  EXPECT_THAT(log.difference()->text, HasSubstr("its exchange 1 is all_gather of 12 fp32, and rank "
                                                "0's is a comparison of settings"));
}

}  // namespace
}  // namespace coda
