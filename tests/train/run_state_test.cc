// SPDX-License-Identifier: Apache-2.0
// run_state.json: every number comes back to the bit, and what is not one is refused.
#include "train/run_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "coda/error.h"
#include "io/error_message.h"

namespace coda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

RunState example() {
  RunState state;
  state.step = 1234;
  state.seed = UINT64_MAX;
  state.options = {{"data", "a \"quoted\" name, \xc3\xa9"}, {"lr", "0.001"}, {"empty", ""}};
  state.eight_bit_scales = {0.5, 448};
  state.train_losses = {{0, 5.545177444479562},
                        {1, 1.0 / 3},
                        {2, std::numeric_limits<double>::denorm_min()},
                        {3, static_cast<double>(2.7182817f)},
                        {4, 7}};
  state.held_out_losses = {{4, 1e-300}};
  return state;
}

TEST(RunState, ComesBackToTheBit) {
  EXPECT_EQ(parse_run_state(run_state_text(example()), "x"), example());
  EXPECT_EQ(parse_run_state(run_state_text({}), "x"), RunState{});
}

// Names on a disk are bytes.
TEST(RunState, APathThatIsNoUtf8IsWritten) {
  RunState state;
  state.options = {{"data", "/data/\xff.txt"}};
  EXPECT_THAT(parse_run_state(run_state_text(state), "x").options.at("data"),
              AllOf(StartsWith("/data/"), testing::EndsWith(".txt")));
}

TEST(RunState, HoldsFiniteLossesOnly) {
  RunState state;
  state.train_losses = {{0, std::nan("")}};
  EXPECT_THROW(run_state_text(state), InternalError);
}

TEST(RunState, RefusesWhatIsNotOne) {
  const auto message = [](const std::string& text) {
    return error_message([&] { parse_run_state(text, "run_state.json"); });
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = run_state_text(example());
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return message(text.replace(at, from.size(), to));
  };
  EXPECT_THAT(message(""), AllOf(StartsWith("run_state.json: "), HasSubstr("the file is empty")));
  EXPECT_THAT(message("{"), AllOf(StartsWith("run_state.json: "), HasSubstr("not valid JSON")));
  EXPECT_THAT(message("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(message("{}"), HasSubstr("no 'format'"));
  EXPECT_THAT(with("\"format\":1", "\"format\":2"), HasSubstr("format '2' is not the one"));
  EXPECT_THAT(with("\"step\":1234", "\"step\":-1"), HasSubstr("'step' is no count"));
  EXPECT_THAT(with("\"step\":1234", "\"step\":1.5"), HasSubstr("'step' is no count"));
  EXPECT_THAT(with("\"step\":1234", "\"steps\":1"), HasSubstr("no 'step'"));
  EXPECT_THAT(with("18446744073709551615", "18446744073709551616"), HasSubstr("'seed'"));
  EXPECT_THAT(with("\"0.001\"", "0.001"), HasSubstr("'options' has a value that is no text"));
  EXPECT_THAT(with("[0,5.5", "[0,7],[\"0\",5.5"), HasSubstr("'train_losses' has an entry"));
  EXPECT_THAT(with("[[4,1e-300]]", "{}"), HasSubstr("'held_out_losses' is no list"));
  EXPECT_THAT(with("[4,7.0]", "[2000,7.0]"), HasSubstr("'train_losses' has step 2000"));
  EXPECT_THAT(with("[4,7.0]", "[3,7.0]"), HasSubstr("'train_losses' has step 3"));
  const char* scales = "'eight_bit_scales' has an entry that is no number from 0";
  EXPECT_THAT(with("[0.5,448.0]", "[0.5,-1]"), HasSubstr(scales));
  EXPECT_THAT(with("[0.5,448.0]", "[\"0.5\"]"), HasSubstr(scales));
  EXPECT_THAT(with("[0.5,448.0]", "[1e300]"), HasSubstr(scales));
  EXPECT_THAT(with("[0.5,448.0]", "{}"), HasSubstr("'eight_bit_scales' is no list"));
  EXPECT_EQ(with("\"eight_bit_scales\":", "\"scales\":"), "");  // of an older version
  EXPECT_THAT(with("\"seed\":", "\"sed\":"), HasSubstr("no 'seed'"));
  EXPECT_THAT(with("\"options\":", "\"option\":"), HasSubstr("no 'options'"));
  EXPECT_THAT(with("\"train_losses\":", "\"losses\":"), HasSubstr("no 'train_losses'"));
  EXPECT_THAT(message("{\"format\":\"" + std::string(10000, 'x') + "\"}"),
              testing::SizeIs(testing::Lt(600)));
}

TEST(RunState, SurvivesSeededMutations) {
  const std::string original = run_state_text(example());
  constexpr uint64_t kSeed = 12;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  for (int run = 0; run < 5000; ++run) {
    std::string text = original;
    const size_t place = random() % text.size();
    switch (random() % 4) {
      case 0: text[place] = static_cast<char>(random()); break;
      case 1: text.resize(place); break;
      case 2: text.erase(place, 1 + random() % 9); break;
      default: text.insert(place, 1, "[{\"1e9"[random() % 6]); break;
    }
    const std::string message = error_message([&] { parse_run_state(text, "run_state.json"); });
    if (!message.empty()) {
      ASSERT_THAT(message, StartsWith("run_state.json: ")) << "run " << run;
    }
  }
}

}  // namespace
}  // namespace coda
