// SPDX-License-Identifier: Apache-2.0
// Flags for the data to read: --data, a text or a folder of texts, or --ids, a file of token ids.
#pragma once

#include <string>

#include "coda/text_data.h"
#include "text_tokens.h"

namespace CLI {
class App;
}

namespace coda::tools {

struct DataFlags {
  std::string data;
  std::string ids;
  int id_bytes = 2;

  void add_to(CLI::App& command);
  bool is_text() const { return ids.empty(); }
  // Throws Error unless exactly one is given, it is readable, and all its ids are below `vocab`.
  Tokens load(int64_t vocab, const TextTokens& text) const;
};

}  // namespace coda::tools
