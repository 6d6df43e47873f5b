// SPDX-License-Identifier: Apache-2.0
// The two flags exclude each other; load() reports which one is missing or unreadable.
#include "data_flags.h"

#include <CLI/CLI.hpp>

#include "coda/error.h"

namespace coda::tools {
void DataFlags::add_to(CLI::App& command) {
  command.add_option("--data", data, "A text file, or a folder of them")
      ->type_name("PATH")
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
      ->group("Data");
  command.add_option("--ids", ids, "Instead of --data: a file of token ids, little-endian numbers")
      ->type_name("FILE")
      ->group("Data");
  command.add_option("--id-bytes", id_bytes, "Bytes of an id in the file of --ids")
      ->check(CLI::IsMember({2, 4}))
      ->capture_default_str()
      ->group("Data");
}

Tokens DataFlags::load(int64_t vocab, const TextTokens& text) const {
  require(!data.empty() || !ids.empty(),
          "no data: give a text with --data or token ids with --ids");
  require(data.empty() || ids.empty(), "--data and --ids are both given: give one of them");
  if (!ids.empty()) return load_token_ids(ids, id_bytes, vocab);
  const Tokens tokens = text.load(data);
  check_vocabulary(tokens, vocab);
  return tokens;
}

}  // namespace coda::tools
