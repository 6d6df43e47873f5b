// SPDX-License-Identifier: Apache-2.0
// Reads tokenizer.json. Settings for batches of other programs ('truncation', 'padding') are passed
// over, as transformers does.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file_error.h"
#include "coda/error.h"
#include "io/json_text.h"
#include "io/mapped_file.h"
#include "tokenizer/byte_letters.h"
#include "tokenizer/component.h"
#include "tokenizer/tokenizer_parts.h"

namespace coda::tokenizer {
namespace {

using nlohmann::json;
using Merges = std::vector<std::pair<std::string, std::string>>;

constexpr int64_t kMostTokens = 1 << 24;  // ids are below

void add_token(Tokenizer::Parts& parts, const std::string& token, int64_t id,
               const std::string& source) {
  require(id >= 0 && id < kMostTokens, source + ": the token " + in_quotes(token) + " has the id " +
                                           std::to_string(id) + " (ids are from 0 to 2^24 - 1)");
  if (std::ssize(parts.tokens) <= id) parts.tokens.resize(static_cast<size_t>(id) + 1);
  parts.tokens[static_cast<size_t>(id)] = token;
  parts.ids[token] = static_cast<int32_t>(id);
}

// "a b" in older files, ["a", "b"] in newer ones.
std::pair<std::string, std::string> pair_of(const json& merge, const std::string& source) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t blank = text.find(' ');
    if (blank != std::string::npos && text.find(' ', blank + 1) == std::string::npos)
      return {text.substr(0, blank), text.substr(blank + 1)};
  }
  throw Error(source + ": 'merges' has " + in_quotes(merge.dump()) +
              ", which is no pair of tokens (the file is damaged: fetch it again)");
}

Bpe read_model(const Component& model, Tokenizer::Parts& parts) {
  const std::string& source = model.source();
  const bool of_bytes = parts.pre_tokenizer.of_bytes;
  // Files from before there were several models have no 'type'.
  if (!model.is("BPE") && (model.find("type") != nullptr || model.find("merges") == nullptr))
    model.refuse();
  if (const json* dropout = model.find("dropout"))
    if (*dropout != 0) model.refuse("'dropout'");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.text(affix, "").empty()) model.refuse(std::string("'") + affix + "'");
  const json* vocab = model.find("vocab");
  const json* merges = model.find("merges");
  require(vocab != nullptr && vocab->is_object() && merges != nullptr && merges->is_array(),
          source + ": needs 'vocab' and 'merges' (the file is damaged: fetch it again)");

  // What is no letters of bytes can come from no text: such tokens are found as they are written.
  const auto as_symbols = [&](const std::string& token) {
    return of_bytes ? bytes_of_letters(token) : std::optional(token);
  };
  Vocabulary vocabulary;
  for (const auto& [token, id] : vocab->items()) {
    require(id.is_number_integer(), source + ": the token " + in_quotes(token) + " has no id");
    add_token(parts, token, id.get<int64_t>(), source);
    if (auto symbols = as_symbols(token)) vocabulary.emplace(*symbols, id.get<int32_t>());
  }
  Merges pairs;
  for (const json& merge : *merges) {
    const auto [left, right] = pair_of(merge, source);
    const auto a = as_symbols(left);
    const auto b = as_symbols(right);
    require(a && b, source + ": 'merges' has the pair " + in_quotes(left) + ", " +
                        in_quotes(right) + ", which are no letters of bytes");
    pairs.emplace_back(*a, *b);
  }
  BpeSettings settings{.of_bytes = of_bytes,
                       .byte_fallback = model.flag("byte_fallback", false),
                       .fuses_unknown = model.flag("fuse_unk", false),
                       .ignores_merges = model.flag("ignore_merges", false)};
  if (of_bytes && settings.byte_fallback) model.refuse("'byte_fallback' behind ByteLevel");
  if (const std::string unknown = model.text("unk_token", ""); !unknown.empty()) {
    require(parts.ids.contains(unknown),
            source + ": 'unk_token' is " + in_quotes(unknown) + ", which 'vocab' lacks");
    settings.unknown = parts.ids.at(unknown);
  }
  return {std::move(vocabulary), pairs, settings, source};
}

void read_added_tokens(const Component& file, Tokenizer::Parts& parts) {
  for (const Component& token : file.parts("added_tokens")) {
    AddedToken added{.content = token.text("content"),
                     .id = static_cast<int32_t>(token.number("id", 0)),
                     .strips_left = token.flag("lstrip", false),
                     .strips_right = token.flag("rstrip", false),
                     .is_special = token.flag("special", false),
                     .is_normalized = token.flag("normalized", true)};
    if (token.flag("single_word", false))
      token.refuse("'single_word' of " + in_quotes(added.content));
    add_token(parts, added.content, added.id, token.source());
    if (added.is_special) parts.special.insert(added.id);
    if (added.is_normalized) {
      // Decoding gives the normalized text, because encoding finds the token in normalized text.
      added.content = normalized(parts.normalizer, added.content);
      parts.tokens[static_cast<size_t>(added.id)] = added.content;
      parts.as_normalized.add(std::move(added));
    } else {
      parts.as_written.add(std::move(added));
    }
  }
}

// The special tokens of TemplateProcessing's 'single', around the text.
void read_template(const Component& processor, Tokenizer::Parts& parts) {
  const json* pieces = processor.find("single");
  const json* tokens = processor.find("special_tokens");
  require(pieces != nullptr && pieces->is_array(), processor.source() + ": needs 'single'");
  int texts = 0;
  for (const json& piece : *pieces) {
    if (piece.contains("Sequence")) {
      ++texts;
      continue;
    }
    const json::json_pointer name("/SpecialToken/id");
    const bool is_named = piece.is_object() && piece.contains(name) && piece[name].is_string() &&
                          tokens != nullptr && tokens->is_object();
    const json* ids = nullptr;
    if (is_named && tokens->contains(piece[name].get<std::string>())) {
      const json& token = (*tokens)[piece[name].get<std::string>()];
      if (token.is_object() && token.contains("ids")) ids = &token["ids"];
    }
    require(ids != nullptr && ids->is_array(),
            processor.source() + ": 'single' names a token without ids");
    for (const json& id : *ids) {
      require(id.is_number_integer() && id >= 0 && id < std::ssize(parts.tokens),
              processor.source() + ": an id of 'special_tokens' is no token's");
      (texts == 0 ? parts.before : parts.behind).push_back(id.get<int32_t>());
    }
  }
  if (texts != 1) processor.refuse("'single' without one text");
}

}  // namespace

Tokenizer::Parts read_tokenizer(const std::filesystem::path& path) {
  const std::string source = printable(path);
  const json text = io::parse_json(io::read_file(path), source);
  const Component file(text, source);
  Tokenizer::Parts parts;
  if (file.find("normalizer") != nullptr)
    parts.normalizer = make_normalizer(file.part("normalizer"));
  if (file.find("pre_tokenizer") != nullptr)
    parts.pre_tokenizer = make_pre_tokenizer(file.part("pre_tokenizer"));
  parts.model = read_model(file.part("model"), parts);
  read_added_tokens(file, parts);
  if (file.find("post_processor") != nullptr) {
    for (const Component& part : flattened(file.part("post_processor"), "processors")) {
      if (part.is("TemplateProcessing")) {
        read_template(part, parts);
      } else if (!part.is("ByteLevel")) {  // which changes offsets alone
        part.refuse();
      }
    }
  }
  if (file.find("decoder") != nullptr) parts.decoder = make_decoder(file.part("decoder"));
  return parts;
}

}  // namespace coda::tokenizer
