// SPDX-License-Identifier: Apache-2.0
// Each target reads its seeds (corpus/NAME.bin among them), and for about a second inputs that are
// generated from them. `make fuzz` runs for longer.
#include <gtest/gtest.h>

#include <map>

#include "fuzz/targets.h"

namespace coda::fuzz {
namespace {

class Fuzz : public testing::TestWithParam<const char*> {};

TEST_P(Fuzz, WhateverComesIsReadOrRefused) {
  const std::string name = GetParam();
  const auto target = make_target(name);
  for (const std::string& input : target->seeds) ASSERT_NO_THROW(target->read(input)) << input;
  // Numbers of inputs that take about a second for each target.
  static const std::map<std::string, uint64_t> kCounts{
      {"config", 5000},  {"tokenizer", 250}, {"safetensors", 800}, {"npz", 2000},
      {"program", 3000}, {"graph", 1500},    {"formula", 5000},    {"hello", 2000}};
  const uint64_t count = kCounts.at(name);
  for (uint64_t number = 0; number < count; ++number) {
    const std::string input = changed(*target, target->seeds, number);
    ASSERT_NO_THROW(target->read(input)) << "input " << number << ": " << input;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz,
                         testing::ValuesIn(target_names().begin(), target_names().end()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace coda::fuzz
