// SPDX-License-Identifier: Apache-2.0
// Ids and texts are those of the Python package `tokenizers`, for small tokenizers of each kind
// that it trains, on texts that are hard and on random ones: tests/parity/tokenizers_reference.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "coda/tokenizer.h"
#include "io/mapped_file.h"
#include "io/temp_folder.h"
#include "parity/python_modules.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const std::string& hexadecimal) {
  std::string bytes;
  for (size_t i = 0; i < hexadecimal.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hexadecimal.substr(i, 2), nullptr, 16));
  return bytes;
}

// Of a stream that is given one id at a time, in all.
std::string streamed(const Tokenizer& tokenizer, std::span<const int32_t> ids, size_t before) {
  TextStream stream(tokenizer, ids.first(before));
  std::string text = tokenizer.decode(ids.first(before));
  for (const int32_t id : ids.subspan(before)) text += stream.push(id);
  return text + stream.finish();
}

void check(const fs::path& folder) {
  SCOPED_TRACE(folder.filename());
  const Tokenizer tokenizer(folder);
  TextEncoder encoder(tokenizer);
  for (const auto& expected : nlohmann::json::parse(io::read_file(folder / "cases.json"))) {
    const std::string text = bytes_of(expected["bytes"]);
    SCOPED_TRACE("the text " + expected["bytes"].get<std::string>());
    const auto ids = expected["ids"].get<std::vector<int32_t>>();
    ASSERT_EQ(tokenizer.encode(text), ids);
    ASSERT_EQ(tokenizer.encode(text, false), expected["plain"].get<std::vector<int32_t>>());
    std::vector<int32_t> remembered;
    encoder.append(text, true, remembered);
    ASSERT_EQ(remembered, ids);
    ASSERT_EQ(tokenizer.decode(ids), expected["text"].get<std::string>());
    ASSERT_EQ(tokenizer.decode(ids, false), expected["all"].get<std::string>());
    ASSERT_EQ(streamed(tokenizer, ids, 0), expected["text"].get<std::string>());
  }
}

TEST(TokenizerParity, EachKindGivesTheIdsAndTextsOfTokenizers) {
  const fs::path venv = fs::path(CODA_SOURCE_DIR) / ".venv/bin/python";
  const std::string python = fs::exists(venv) ? venv.string() : "python3";
  if (!has_modules(python, "tokenizers"))
    GTEST_SKIP() << "no Python with tokenizers; `scripts/setup.sh judges` installs it";
  const TempFolder folder;
  const std::string command =
      python + " " + CODA_SOURCE_DIR + "/tests/parity/tokenizers_reference.py " +
      (folder / "kinds").string() + " > " + (folder / "log").string() + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << io::read_file(folder / "log");
  for (const auto& kind : fs::directory_iterator(folder / "kinds")) check(kind.path());
}

}  // namespace
}  // namespace coda
