// SPDX-License-Identifier: Apache-2.0
// Each target reads its seeds, the inputs of earlier failures (corpus/NAME/*, if there are any),
// and for about a second inputs that are generated from both. `make fuzz` runs for longer.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "fuzz/targets.h"
#include "io/mapped_file.h"

namespace coda::fuzz {
namespace {

class Fuzz : public testing::TestWithParam<const char*> {};

TEST_P(Fuzz, WhateverComesIsReadOrRefused) {
  const std::string name = GetParam();
  const auto target = make_target(name);
  std::vector<std::string> inputs = target->seeds;
  const std::filesystem::path found =
      std::filesystem::path(CODA_SOURCE_DIR) / "tests/fuzz/corpus" / name;
  if (std::filesystem::exists(found))
    for (const auto& file : std::filesystem::directory_iterator(found))
      inputs.push_back(io::read_file(file.path()));
  for (const std::string& input : inputs) ASSERT_NO_THROW(target->read(input)) << input;
  // Numbers of inputs that take about a second for each target.
  static const std::map<std::string, uint64_t> kCounts{
      {"config", 5000},  {"tokenizer", 250}, {"safetensors", 800}, {"npz", 2000},
      {"program", 3000}, {"graph", 1500},    {"formula", 5000},    {"hello", 2000}};
  const uint64_t count = kCounts.at(name);
  for (uint64_t number = 0; number < count; ++number) {
    const std::string input = changed(*target, inputs, number);
    ASSERT_NO_THROW(target->read(input)) << "input " << number << ": " << input;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz,
                         testing::ValuesIn(target_names().begin(), target_names().end()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace coda::fuzz
