// SPDX-License-Identifier: Apache-2.0
// What a tokenizer's file may ask for, what is refused, and texts of a folder as tokens. That ids
// are right is in parity_test.cc.
#include "coda/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "io/error_message.h"
#include "io/temp_folder.h"
#include "tokenizer/small_tokenizer.h"

namespace coda {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class TokenizerFile : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder / name) << text;
    return folder / name;
  }
  std::string refusal_of(const std::string& text) const {
    const auto file = write("tokenizer.json", text);
    return error_message([&] { const Tokenizer tokenizer(file); });
  }

  TempFolder folder;
};

TEST_F(TokenizerFile, WordsArePairsJoinedAndOtherCharactersBytes) {
  const Tokenizer tokenizer(write("tokenizer.json", small_tokenizer()));
  EXPECT_THAT(tokenizer.encode("line line1"), ElementsAre(1, 267, 267, 268));
  EXPECT_THAT(tokenizer.encode("é", false), ElementsAre(259, 3 + 0xC3, 3 + 0xA9));
  EXPECT_THAT(tokenizer.encode("</s>line"), ElementsAre(1, 2, 267));
  EXPECT_THAT(tokenizer.encode(""), ElementsAre(1));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("line é")), "line é");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{-1, 5000, 267}), "line");
  EXPECT_EQ(tokenizer.vocabulary(), kSmallTokens);
  EXPECT_EQ(tokenizer.id_of("</s>"), 2);
  EXPECT_EQ(tokenizer.id_of("line "), std::nullopt);
}

// A word of the vocabulary that no merges make.
TEST_F(TokenizerFile, WhereMergesAreIgnoredAWordOfTheVocabularyIsOneToken) {
  const auto ids_of_line = [&](const std::string& settings) {
    std::string text = small_tokenizer(R"("normalizer": null, "pre_tokenizer": null,)", settings);
    const std::string merges = R"(, "li ne", "▁ line")";
    text.erase(text.find(merges), merges.size());
    return Tokenizer(write("tokenizer.json", text)).encode("line", false);
  };
  EXPECT_THAT(ids_of_line(""), ElementsAre(264, 265));
  EXPECT_THAT(ids_of_line(R"("ignore_merges": true,)"), ElementsAre(266));
}

TEST_F(TokenizerFile, AStreamHoldsBackBytesUntilTheyAreACharacter) {
  const Tokenizer tokenizer(write("tokenizer.json", small_tokenizer()));
  TextStream stream(tokenizer, std::vector<int32_t>{1, 267});
  EXPECT_EQ(stream.push(267), " line");
  EXPECT_EQ(stream.push(3 + 0xC3), "");
  EXPECT_EQ(stream.push(3 + 0xA9), "é");
  EXPECT_EQ(stream.push(3 + 0xC3), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST_F(TokenizerFile, WhatIsNotSupportedIsRefusedByItsName) {
  const auto with_front = [&](const std::string& front) {
    return refusal_of(small_tokenizer(front));
  };
  EXPECT_THAT(with_front(R"("normalizer": {"type": "Lowercase"},)"),
              AllOf(HasSubstr("normalizer Lowercase"), HasSubstr("not supported")));
  EXPECT_THAT(with_front(R"("normalizer": null, "pre_tokenizer": {"type": "Sequence",
                            "pretokenizers": [{"type": "Whitespace"}]},)"),
              HasSubstr("Sequence: Whitespace is not supported"));
  for (const char* regex : {R"(\\C)",
                            "(*UCP)a",
                            "^a",
                            "a*",
                            "(?:a?)+",
                            "(a",
                            "a(?!bc)",
                            "(?<=a)b",
                            R"((a)\\1)",
                            R"(\\bx)",
                            "(?:ab)++",
                            "(?i:é)",
                            "(?i:st)",
                            R"(\\p{Hann})",
                            "[[:punct:]]",
                            "[a",
                            "[z-a]",
                            "a{2}?",
                            "(?:a|b)*a(?:a|b){40}",
                            "a{1001}",
                            "(?x)a",
                            "(?>a)",
                            R"(\\xE9)"}) {
    EXPECT_THAT(with_front(R"("pre_tokenizer": {"type": "Split", "behavior": "Isolated",
                              "pattern": {"Regex": ")" +
                           std::string(regex) + R"("}},)"),
                HasSubstr("the regular expression"))
        << regex;
  }
  std::string strips_nothing = small_tokenizer();
  const std::string strip = R"("type": "Strip", "content": ")";
  strips_nothing.erase(strips_nothing.find(strip) + strip.size(), 1);
  EXPECT_THAT(refusal_of(strips_nothing), HasSubstr("'content' is empty"));
  const auto with_model = [&](const std::string& model) {
    return refusal_of(small_tokenizer("", model));
  };
  EXPECT_THAT(with_model(R"("dropout": 0.1,)"), HasSubstr("'dropout'"));
  EXPECT_THAT(with_model(R"("end_of_word_suffix": "</w>",)"), HasSubstr("'end_of_word_suffix'"));
  EXPECT_THAT(refusal_of(R"({"model": {"type": "Unigram", "vocab": []}})"),
              HasSubstr("model Unigram is not supported"));
}

// Few replacements by longer texts are usual; many would make a text longer than any memory.
TEST_F(TokenizerFile, StepsThatMakeATextTooLongAreRefused) {
  const auto steps = [](const std::string& step, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += (i == 0 ? "" : ", ") + step;
    return all;
  };
  const auto with_normalizers = [&](const std::string& all) {
    return refusal_of(
        small_tokenizer(R"("normalizer": {"type": "Sequence", "normalizers": [)" + all + R"(]},)"));
  };
  const std::string doubles = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  const std::string of_regex =
      R"({"type": "Replace", "pattern": {"Regex": "[ab]+"}, "content": "aaaaaaaa"})";
  const std::string in_front =
      R"({"type": "Prepend", "prepend": ")" + std::string(2000, 'a') + R"("})";
  EXPECT_EQ(with_normalizers(steps(doubles, 10)), "");
  EXPECT_THAT(with_normalizers(steps(doubles, 11)), HasSubstr("more than 1024 times as long"));
  EXPECT_THAT(with_normalizers(steps(of_regex, 4)), HasSubstr("more than 1024 times as long"));
  EXPECT_THAT(with_normalizers(in_front), HasSubstr("more than 1024 times as long"));
  std::string decodes = small_tokenizer();
  const std::string first = R"("decoders": [)";
  decodes.insert(decodes.find(first) + first.size(), steps(doubles, 40) + ",");
  EXPECT_THAT(refusal_of(decodes), HasSubstr("decoder Sequence: Replace: with this step"));
}

// An algorithm of quadratic time would take minutes.
TEST_F(TokenizerFile, ManyMarksOfOneLetterAreOrderedInLinearTime) {
  const Tokenizer tokenizer(write("tokenizer.json", small_tokenizer(R"("normalizer":
      {"type": "NFC"}, "pre_tokenizer": null,)")));
  constexpr int kPairs = 100000;
  std::string mixed = "q", ordered = "q";
  for (int i = 0; i < kPairs; ++i) mixed += "\u0301\u0323";  // above, below: classes 230 and 220
  for (int i = 0; i < kPairs; ++i) ordered += "\u0323";
  for (int i = 0; i < kPairs; ++i) ordered += "\u0301";
  EXPECT_EQ(tokenizer.encode(mixed), tokenizer.encode(ordered));
}

std::string split_by(const std::string& regex) {
  return R"("normalizer": null, "pre_tokenizer": {"type": "Split", "behavior": "Isolated",
            "pattern": {"Regex": ")" +
         regex + R"("}},)";
}

// The regular expression of LLaMA 3. A backtracking matcher would go back over the white space
// before the letter.
TEST_F(TokenizerFile, ARunOfSpacesOfAnyLengthIsOneMatch) {
  const Tokenizer tokenizer(write(
      "tokenizer.json",
      small_tokenizer(
          split_by(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|)"
                   R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)"))));
  const size_t spaces = 12'000'000;
  EXPECT_EQ(tokenizer.encode(std::string(spaces, ' ') + "line").size(),
            1 + spaces + tokenizer.encode(" line").size() - 2);
}

// A matcher that runs to the end of the text from each position would take hours.
TEST_F(TokenizerFile, APatternThatLooksFarAheadInVainTakesLinearTime) {
  const Tokenizer far(write("tokenizer.json", small_tokenizer(split_by("e[^n]*n|e|l+i"))));
  const size_t letters = 1'000'000;
  EXPECT_EQ(far.encode(std::string(letters, 'e'), false).size(), letters);
  EXPECT_EQ(far.encode(std::string(letters, 'l'), false).size(), letters);
  EXPECT_EQ(far.encode(std::string(letters, 'e') + "n", false).size(), letters + 1);
}

TEST_F(TokenizerFile, WhatIsDamagedIsRefused) {
  EXPECT_THAT(refusal_of("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal_of("{}"), HasSubstr("'model' is missing"));
  EXPECT_THAT(refusal_of(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}})"),
              HasSubstr("needs the token 'b'"));
  EXPECT_THAT(refusal_of(R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})"),
              HasSubstr("the id -1"));
  EXPECT_THAT(refusal_of(R"({"model": {"type": "BPE", "vocab": {"a": 1e9}, "merges": []}})"),
              HasSubstr("has no id"));
  EXPECT_THAT(refusal_of(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["ab"]}})"),
              HasSubstr("no pair of tokens"));
}

TEST_F(TokenizerFile, AFolderWithoutATokenizerHasNoneUnlessItIsInAnotherForm) {
  EXPECT_FALSE(find_tokenizer(folder.path()).has_value());
  write("tokenizer.model", "x");
  EXPECT_THAT(error_message([&] { find_tokenizer(folder.path()); }),
              AllOf(HasSubstr("tokenizer.model"), HasSubstr("save_pretrained")));
  write("tokenizer.json", small_tokenizer());
  EXPECT_TRUE(find_tokenizer(folder.path()).has_value());
}

TEST_F(TokenizerFile, TextsOfAFolderStartWithTheirSpecialTokenOrAreParted) {
  const Tokenizer marks(write("tokenizer.json", small_tokenizer()));
  std::filesystem::create_directory(folder / "texts");
  write("texts/a.txt", "line");
  write("texts/b.txt", "line1");
  const Tokens tokens = tokenize_text(folder / "texts", marks, 2);
  ASSERT_EQ(tokens.size(), 5);
  EXPECT_EQ(tokens[0], 1);
  EXPECT_TRUE(tokens[2] == 1 || tokens[3] == 1);
  std::string plain = small_tokenizer();
  const size_t mark = plain.find(R"({"SpecialToken")");
  plain.erase(mark, plain.find(R"({"Sequence": {"id")") - mark);
  const Tokenizer none(write("tokenizer.json", plain));
  const Tokens parted = tokenize_text(folder / "texts", none, 2);
  ASSERT_EQ(parted.size(), 4);
  EXPECT_TRUE(parted[1] == 2 || parted[2] == 2);
  EXPECT_EQ(tokenize_text(folder / "texts", none).size(), 3);
}

TEST_F(TokenizerFile, TheTokensThatEndATextAreThoseOfTheGeneration) {
  EXPECT_THAT(end_tokens_of(folder.path()), IsEmpty());
  write("config.json", R"({"eos_token_id": 2})");
  EXPECT_THAT(end_tokens_of(folder.path()), ElementsAre(2));
  write("generation_config.json", R"({"eos_token_id": [3, 4]})");
  EXPECT_THAT(end_tokens_of(folder.path()), ElementsAre(3, 4));
  write("generation_config.json", R"({"eos_token_id": "x"})");
  EXPECT_THAT(error_message([&] { end_tokens_of(folder.path()); }), HasSubstr("'eos_token_id'"));
}

}  // namespace
}  // namespace coda
