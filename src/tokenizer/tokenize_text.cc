// SPDX-License-Identifier: Apache-2.0
// Files of text as tokens, several at once.
#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>

#include "coda/error.h"
#include "coda/messages.h"
#include "coda/tokenizer.h"
#include "io/json_text.h"
#include "io/mapped_file.h"
#include "io/text_files.h"

namespace coda {
namespace fs = std::filesystem;
namespace {

std::vector<int32_t> tokens_of(const fs::path& file, TextEncoder& encoder) {
  const io::MappedFile mapped(file);
  const std::span<const std::byte> bytes = mapped.bytes();
  require(!bytes.empty(), printable(file) + ": the file is empty (give a text)");
  io::require_text(bytes, printable(file));
  std::vector<int32_t> ids;
  encoder.append({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, true, ids);
  io::require_whole(bytes);
  return ids;
}

}  // namespace

Tokens tokenize_text(const fs::path& path, const Tokenizer& tokenizer, std::optional<int32_t> end) {
  std::error_code ignored;  // reading it says what is wrong
  std::vector<fs::path> files{path};
  if (fs::is_directory(path, ignored)) {
    files = io::texts_in(path);
    require(!files.empty(), printable(path) + ": no text files in the folder (give another)");
  }
  std::vector<std::vector<int32_t>> texts(files.size());
  std::exception_ptr failure;
#pragma omp parallel if (files.size() > 1)
  {
    TextEncoder encoder(tokenizer);
#pragma omp for schedule(dynamic)
    for (size_t i = 0; i < files.size(); ++i) {
      try {
        texts[i] = tokens_of(files[i], encoder);
      } catch (...) {
#pragma omp critical
        failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
  const bool has_marks = !tokenizer.encode("").empty();
  auto ids = std::make_shared<std::vector<int32_t>>();
  for (std::vector<int32_t>& text : texts) {
    if (!ids->empty() && end && !has_marks) ids->push_back(*end);
    ids->insert(ids->end(), text.begin(), text.end());
    text = {};
  }
  require(!ids->empty(), printable(path) + ": there is no token in it (give a longer text)");
  return {printable(path), ids, std::as_bytes(std::span(*ids)), 4};
}

std::vector<int32_t> end_tokens_of(const fs::path& model_folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path file = model_folder / name;
    std::error_code ignored;
    if (!fs::exists(file, ignored)) continue;
    const nlohmann::json config = io::parse_json(io::read_file(file), printable(file));
    if (!config.is_object() || !config.contains("eos_token_id")) continue;
    nlohmann::json ends = config["eos_token_id"];
    if (ends.is_null()) continue;
    if (!ends.is_array()) ends = nlohmann::json::array({ends});
    std::vector<int32_t> ids;
    for (const auto& id : ends) {
      require(id.is_number_integer() && id >= 0 && id <= INT32_MAX,
              printable(file) + ": 'eos_token_id' is " + in_quotes(config["eos_token_id"].dump()) +
                  ", which is no token id or list of them");
      ids.push_back(id.get<int32_t>());
    }
    return ids;
  }
  return {};
}

}  // namespace coda
