// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json as LLaMA 2 has it, small enough to know its ids: <unk>, <s>, </s>, the bytes
// from 3 on, then from 259 on kLetters and what kMerges makes of them.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace coda {

// `settings` are put in front of those of the file: \"normalizer\": null, for example.
inline std::string small_tokenizer(const std::string& front =
                                       R"("normalizer": {"type": "Sequence", "normalizers": [
             {"type": "Prepend", "prepend": "▁"},
             {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
           "pre_tokenizer": null,)",
                                   const std::string& model = R"("byte_fallback": true,)") {
  std::string vocab = R"("<unk>": 0, "<s>": 1, "</s>": 2)";
  char token[32];
  for (int byte = 0; byte < 256; ++byte) {
    std::snprintf(token, sizeof token, ", \"<0x%02X>\": %d", byte, 3 + byte);
    vocab += token;
  }
  int id = 259;
  for (std::string_view name :
       {"▁", "e", "i", "l", "n", "li", "ne", "line", "▁line", "1", "2", "3", "4", "\\n"})
    vocab += ", \"" + std::string(name) + "\": " + std::to_string(id++);
  const auto special = [](const char* name, int id) {
    return R"({"id": )" + std::to_string(id) + R"(, "content": ")" + name +
           R"(", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
              "special": true})";
  };
  return R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [)" +
         special("<s>", 1) + ", " + special("</s>", 2) + "]," + front +
         R"("post_processor": {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                        {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
             "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
           "decoder": {"type": "Sequence", "decoders": [
             {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
             {"type": "ByteFallback"}, {"type": "Fuse"},
             {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
           "model": {"type": "BPE",)" +
         model + R"("unk_token": "<unk>", "fuse_unk": true, "vocab": {)" + vocab +
         R"(}, "merges": ["l i", "n e", "li ne", "▁ line"]}})";
}

inline constexpr int kSmallTokens = 273;

}  // namespace coda
