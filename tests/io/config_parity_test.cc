// SPDX-License-Identifier: Apache-2.0
// Checks every key of config.json, for every architecture, against transformers. If a value of the
// key changes the weights or a training step in transformers, read_config must use or refuse the
// value. If the key is missing, read_config must use the same default as transformers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "coda/error.h"
#include "io/error_message.h"
#include "io/mapped_file.h"
#include "io/model_config.h"
#include "io/temp_folder.h"
#include "parity/python_modules.h"

namespace coda::io {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// The settings that read_config makes of a config, as text; none if it refuses the config.
std::optional<std::string> meaning_of(const json& config) {
  try {
    const ReadConfig read = read_config(config.dump(), "config.json");
    std::string meaning = model_config_text(read.config, DType::f32);
    for (const std::string& rate : read.dropouts) meaning += "\n" + rate;
    return meaning;
  } catch (const Error&) {
    return std::nullopt;
  }
}

TEST(ConfigParity, EachKeyThatMattersToTransformersIsUsedOrRefused) {
  const auto python = python_with("torch transformers", CODA_SOURCE_DIR);
  if (!python) GTEST_SKIP() << kNoJudges;
  const TempFolder folder;
  const std::string command =
      *python + " " + CODA_SOURCE_DIR + "/tests/parity/config_reference.py " +
      (folder / "cases.json").string() + " > " + (folder / "log").string() + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << read_file(folder / "log");
  const json cases = json::parse(read_file(folder / "cases.json"));
  std::set<std::string> kinds;
  for (const json& one : cases) {
    const auto key = one["key"].get<std::string>();
    SCOPED_TRACE(one["model_type"].get<std::string>() + ": " + key);
    kinds.insert(one["model_type"].get<std::string>());
    const auto usual = meaning_of(one["config"]);
    ASSERT_TRUE(usual) << error_message([&] { read_config(one["config"].dump(), "config.json"); });
    if (one["matters"]) {
      EXPECT_NE(meaning_of(one["changed"]), usual)
          << "transformers computes otherwise with " << one["changed"][key];
    }
    if (!one["config"].contains(key)) continue;
    json without = one["config"];
    without.erase(key);
    json with_default = one["config"];
    with_default[key] = one["default"];
    const auto left_out = meaning_of(without);
    const auto given = meaning_of(with_default);
    if (left_out && given) {
      EXPECT_EQ(*left_out, *given) << "the default is " << one["default"];
    }
  }
  EXPECT_EQ(kinds.size(), 14u);
  EXPECT_GE(cases.size(), 300u);  // transformers refuses some values; these are no cases
  EXPECT_GE(std::ranges::count_if(cases, [](const json& one) { return one["matters"] == true; }),
            200);
}

}  // namespace
}  // namespace coda::io
