// SPDX-License-Identifier: Apache-2.0
// config.json: what transformers 4 and 5 write is read, what we write is read by us (and, in the
// parity tests, by them), and what we do not implement or what cannot be is refused by name.
#include "io/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/atomic_file.h"
#include "coda/checkpoint.h"
#include "io/error_message.h"
#include "io/temp_folder.h"

namespace coda::io {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// LlamaConfig(...).to_json_string() of transformers 4.57.6.
constexpr const char* kLlama4 = R"({
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 1,
  "dtype": "bfloat16",
  "eos_token_id": 2,
  "head_dim": 8,
  "hidden_act": "silu",
  "hidden_size": 64,
  "initializer_range": 0.02,
  "intermediate_size": 96,
  "max_position_embeddings": 2048,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": 8,
  "num_hidden_layers": 2,
  "num_key_value_heads": 2,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-06,
  "rope_scaling": {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3"
  },
  "rope_theta": 500000.0,
  "tie_word_embeddings": true,
  "transformers_version": "4.57.6",
  "use_cache": true,
  "vocab_size": 256
})";

// The same of transformers 5.23.0.
constexpr const char* kLlama5 = R"({
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 1,
  "dtype": "bfloat16",
  "eos_token_id": 2,
  "head_dim": 8,
  "hidden_act": "silu",
  "hidden_size": 64,
  "initializer_range": 0.02,
  "intermediate_size": 96,
  "max_position_embeddings": 2048,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": 8,
  "num_hidden_layers": 2,
  "num_key_value_heads": 2,
  "pad_token_id": null,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-06,
  "rope_parameters": {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_theta": 500000.0,
    "rope_type": "llama3"
  },
  "tie_word_embeddings": true,
  "transformers_version": "5.23.0",
  "use_cache": true,
  "vocab_size": 256
})";

// GPT2Config(...).to_json_string() of transformers 5.23.0; 4 leaves out add_cross_attention,
// pad_token_id and tie_word_embeddings.
constexpr const char* kGpt2 = R"({
  "activation_function": "gelu_new",
  "add_cross_attention": false,
  "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1,
  "bos_token_id": 50256,
  "embd_pdrop": 0.1,
  "eos_token_id": 50256,
  "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2",
  "n_embd": 768,
  "n_head": 12,
  "n_inner": null,
  "n_layer": 12,
  "n_positions": 1024,
  "pad_token_id": null,
  "reorder_and_upcast_attn": false,
  "resid_pdrop": 0.1,
  "scale_attn_by_inverse_layer_idx": false,
  "scale_attn_weights": true,
  "tie_word_embeddings": true,
  "transformers_version": "5.23.0",
  "use_cache": true,
  "vocab_size": 50257
})";

LlamaConfig small_llama() {
  LlamaConfig config;
  config.layers = 2;
  config.hidden = 64;
  config.heads = 8;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.mlp = 96;
  config.vocab = 256;
  config.eps = 1e-6;
  config.rope_theta = 500000;
  config.rope_scaling = Llama3RopeScaling{32, 1, 4, 8192};
  config.tied = true;
  config.max_positions = 2048;
  return config;
}

LlamaConfig parse_llama(const json& object) {
  return std::get<LlamaConfig>(parse_model_config(object.dump(), "config.json"));
}

// The message for kLlama4 (or another) with one setting changed.
std::string message_with(const char* name, const json& value, const char* base = kLlama4) {
  json object = json::parse(base);
  object[json::json_pointer(name)] = value;
  return error_message([&] { parse_model_config(object.dump(), "config.json"); });
}

TEST(ModelConfig, ReadsLlamaOfTransformers4And5) {
  EXPECT_EQ(std::get<LlamaConfig>(parse_model_config(kLlama4, "4")), small_llama());
  EXPECT_EQ(std::get<LlamaConfig>(parse_model_config(kLlama5, "5")), small_llama());

  LlamaConfig plain = small_llama();
  plain.rope_scaling.reset();
  plain.rope_theta = 10000;
  json object = json::parse(kLlama4);
  object["rope_scaling"] = nullptr;
  object.erase("rope_theta");
  EXPECT_EQ(parse_llama(object), plain);
  object = json::parse(kLlama5);
  object["rope_parameters"] = {{"rope_theta", 10000.0}, {"rope_type", "default"}};
  EXPECT_EQ(parse_llama(object), plain);
}

TEST(ModelConfig, ReadsGpt2) {
  Gpt2Config expected;
  expected.layers = 12;
  expected.hidden = 768;
  expected.heads = 12;
  expected.vocab = 50257;
  expected.positions = 1024;
  expected.mlp = 3072;
  expected.eps = 1e-5;
  EXPECT_EQ(std::get<Gpt2Config>(parse_model_config(kGpt2, "gpt2")), expected);
  json object = json::parse(kGpt2);
  for (const char* absent : {"add_cross_attention", "pad_token_id", "tie_word_embeddings"}) {
    object.erase(absent);
  }
  EXPECT_EQ(std::get<Gpt2Config>(parse_model_config(object.dump(), "gpt2")), expected);
  object["n_inner"] = 100;
  EXPECT_EQ(std::get<Gpt2Config>(parse_model_config(object.dump(), "gpt2")).mlp, 100);
}

TEST(ModelConfig, ReadsGptNeox) {
  json object = {{"model_type", "gpt_neox"}, {"num_hidden_layers", 6},
                 {"hidden_size", 48},        {"num_attention_heads", 4},
                 {"intermediate_size", 96},  {"vocab_size", 113},
                 {"rotary_pct", 0.4},        {"rotary_emb_base", 100},
                 {"layer_norm_eps", 1e-6},   {"use_parallel_residual", false}};
  const GptNeoxConfig expected{.layers = 6,
                               .hidden = 48,
                               .heads = 4,
                               .mlp = 96,
                               .vocab = 113,
                               .rotary_dim = 4,
                               .rope_theta = 100,
                               .eps = 1e-6,
                               .parallel = false};
  const auto read = [&] {
    return std::get<GptNeoxConfig>(parse_model_config(object.dump(), "neox"));
  };
  EXPECT_EQ(read(), expected);
  // As transformers 5 writes it.
  object.erase("rotary_pct");
  object.erase("rotary_emb_base");
  object["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 100.0}, {"partial_rotary_factor", 0.4}};
  EXPECT_EQ(read(), expected);
  // Whatever number of channels turns, a reader of what is written finds it.
  for (GptNeoxConfig config = expected; config.rotary_dim <= 12; config.rotary_dim += 2)
    EXPECT_EQ(parse_model_config(model_config_text(config, DType::f32), "written"),
              ModelConfig(config));
  object["rope_parameters"]["partial_rotary_factor"] = 0.1;
  EXPECT_THAT(error_message(read),
              HasSubstr("rotary_pct turns 1 channels of heads of 12, but both must be even"));
  object["rope_parameters"]["rope_type"] = "linear";
  EXPECT_THAT(error_message(read), HasSubstr("only 'default' is supported for GPT-NeoX"));
}

TEST(ModelConfig, HasTransformersDefaults) {
  const json object = {{"model_type", "llama"},    {"hidden_size", 64},
                       {"intermediate_size", 96},  {"num_hidden_layers", 2},
                       {"num_attention_heads", 4}, {"vocab_size", 256},
                       {"rope_theta", 10000},      {"num_key_value_heads", nullptr}};
  const LlamaConfig config = parse_llama(object);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_FALSE(config.tied);
  EXPECT_FALSE(config.rope_scaling);
}

TEST(ModelConfig, WhatIsWrittenIsReadBack) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  const auto size = [&] { return static_cast<int64_t>(1 + random() % 300); };
  const auto real = [&] { return static_cast<double>(1 + random() % 1000000) / 999983.0; };
  for (int run = 0; run < 200; ++run) {
    LlamaConfig llama;
    llama.layers = size();
    llama.hidden = size();
    llama.kv_heads = size();
    llama.heads = llama.kv_heads * (1 + size() % 8);
    llama.head_dim = 2 * size();
    llama.mlp = size();
    llama.vocab = size();
    llama.eps = real() * 1e-5;
    llama.rope_theta = real() * 1e6;
    llama.max_positions = size();
    llama.tied = run % 2 == 0;
    if (run % 3 == 0)
      llama.rope_scaling = Llama3RopeScaling{1 + real(), real(), 2 + real(), size()};
    EXPECT_EQ(parse_model_config(model_config_text(llama, DType::bf16), "written"),
              ModelConfig(llama));
    Gpt2Config gpt2;
    gpt2.layers = size();
    gpt2.heads = size();
    gpt2.hidden = gpt2.heads * (1 + size() % 8);
    gpt2.vocab = size();
    gpt2.positions = size();
    gpt2.mlp = size();
    gpt2.eps = real() * 1e-5;
    EXPECT_EQ(parse_model_config(model_config_text(gpt2, DType::f32), "written"),
              ModelConfig(gpt2));
  }
}

TEST(ModelConfig, WritesTheTypeOfTheWeights) {
  EXPECT_EQ(json::parse(model_config_text(small_llama(), DType::bf16))["torch_dtype"], "bfloat16");
  EXPECT_EQ(json::parse(model_config_text(small_llama(), DType::f32))["torch_dtype"], "float32");
}

TEST(ModelConfig, RefusesOtherModels) {
  EXPECT_THAT(message_with("/architectures", json::array({"FalconForCausalLM"})),
              AllOf(StartsWith("config.json: architectures is '[\"FalconForCausalLM\"]'"),
                    HasSubstr("only LlamaForCausalLM, GPT2LMHeadModel, Qwen2ForCausalLM, "),
                    HasSubstr(" and GPTNeoXForCausalLM are supported")));
  EXPECT_THAT(message_with("/architectures", "LlamaForCausalLM"), HasSubstr("list of one name"));
  EXPECT_THAT(message_with("/architectures", json::array()), HasSubstr("list of one name"));
  EXPECT_THAT(message_with("/architectures", json::array({7})), HasSubstr("list of one name"));
  EXPECT_THAT(message_with("/model_type", "gpt2"), HasSubstr("model_type is '\"gpt2\"', but"));
  EXPECT_THAT(message_with("/model_type", 3), HasSubstr("must be a text"));
  EXPECT_THAT(error_message([] { parse_model_config("{}", "c"); }),
              HasSubstr("c: model_type is missing, but only LlamaForCausalLM, "));
  EXPECT_THAT(error_message([] { parse_model_config("[]", "c"); }), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_message([] { parse_model_config("", "c"); }),
              HasSubstr("c: the file is empty"));
  EXPECT_THAT(error_message([] { parse_model_config(R"({"a":1,"a":2})", "c"); }),
              HasSubstr("'a' appears twice"));
}

// Time is proportional to the text, whatever else it holds.
TEST(ModelConfig, ManyObjectsAreRead) {
  std::string text = R"({"model_type":"llama","hidden_size":8,"num_hidden_layers":1)";
  for (int i = 0; i < 400000; ++i) text += ",\"x" + std::to_string(i) + "\":{}";
  EXPECT_THAT(error_message([&] { parse_model_config(text + "}", "c"); }),
              HasSubstr("num_attention_heads is missing"));
}

TEST(ModelConfig, RefusesSettingsThatAreNotImplemented) {
  EXPECT_THAT(message_with("/hidden_act", "gelu"), HasSubstr("only 'silu'"));
  EXPECT_THAT(message_with("/quantization_config", json::object()), HasSubstr("quantized weights"));
  EXPECT_THAT(message_with("/activation_function", "relu", kGpt2),
              HasSubstr("activation_function is '\"relu\"', but only 'gelu', 'gelu_new'"));
  EXPECT_THAT(message_with("/scale_attn_weights", false, kGpt2), HasSubstr("only true"));
  EXPECT_THAT(message_with("/scale_attn_by_inverse_layer_idx", true, kGpt2),
              HasSubstr("only false"));
  EXPECT_THAT(message_with("/add_cross_attention", true, kGpt2), HasSubstr("only false"));
  for (const char* type : {"proportional"}) {
    EXPECT_THAT(message_with("/rope_scaling/rope_type", type),
                HasSubstr("rope_scaling: rope_type is '\"" + std::string(type) +
                          "\"', but only 'default', 'dynamic', 'linear', 'llama3', "
                          "'longrope' and 'yarn' are supported"));
  }
  EXPECT_THAT(message_with("/rope_scaling", {{"type", "proportional"}, {"factor", 2.0}}),
              HasSubstr("rope_scaling: type is '\"proportional\"'"));
  EXPECT_THAT(message_with("/rope_parameters/partial_rotary_factor", 0.5, kLlama5),
              HasSubstr("partial_rotary_factor is '0.5', but only 1"));
}

// What changes the mathematics of another architecture is refused unless it is off.
TEST(ModelConfig, RefusesWhatOnlyOtherArchitecturesHave) {
  for (const auto& [setting, value] : {std::pair<const char*, json>{"sliding_window", 4096},
                                       {"layer_types", {"full_attention", "sliding_attention"}},
                                       {"attn_logit_softcapping", 50.0},
                                       {"query_pre_attn_scalar", 256},
                                       {"num_local_experts", 8},
                                       {"clip_qkv", 8.0},
                                       {"is_encoder_decoder", true},
                                       {"is_causal", false},
                                       {"partial_rotary_factor", 0.5},
                                       {"embedding_multiplier", 12.0}}) {
    const std::string pointer = std::string("/") + setting;
    EXPECT_THAT(message_with(pointer.c_str(), value, kLlama5),
                AllOf(HasSubstr(setting), HasSubstr("LlamaForCausalLM")));
  }
  for (const auto& [setting, value] : {std::pair<const char*, json>{"sliding_window", nullptr},
                                       {"layer_types", {"full_attention", "full_attention"}},
                                       {"use_sliding_window", false},
                                       {"is_causal", true},
                                       {"pretraining_tp", 2}}) {
    EXPECT_EQ(message_with((std::string("/") + setting).c_str(), value, kLlama5), "") << setting;
  }
}

TEST(ModelConfig, NamesWhatIsNotKnownAndDropout) {
  json object = json::parse(kGpt2);
  object.update({{"n_heads", 3}, {"temperature", 0.7}, {"attn_pdrop", 0.25}, {"resid_pdrop", 0.0}});
  object.erase("embd_pdrop");
  const ReadConfig read = read_config(object.dump(), "config.json");
  EXPECT_THAT(read.unknown, testing::ElementsAre("n_heads"));
  EXPECT_THAT(read.dropouts, testing::ElementsAre("attn_pdrop 0.25", "embd_pdrop 0.1"));
}

// A config of the family, without what has defaults.
json family(const char* model_type) {
  return {{"model_type", model_type}, {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 4},   {"num_attention_heads", 4}, {"vocab_size", 256},
          {"num_key_value_heads", 2}};
}

LlamaConfig parse_family(const char* model_type, const json& more = json::object()) {
  json object = family(model_type);
  object.update(more);
  return parse_llama(object);
}

TEST(ModelConfig, HasTransformersDefaultsOfEachArchitecture) {
  EXPECT_EQ(parse_family("qwen2").window, 0);
  EXPECT_EQ(parse_family("qwen3").head_dim, 128);
  EXPECT_EQ(parse_family("mistral").window, 4096);
  EXPECT_EQ(parse_family("mistral", {{"sliding_window", nullptr}}).window, 0);
  EXPECT_EQ(parse_family("olmo2").eps, 1e-5);
  EXPECT_EQ(parse_family("phi3").window, 0);
  EXPECT_EQ(parse_family("smollm3").rope_theta, 2e6);
  EXPECT_EQ(parse_family("smollm3").rotated, (std::vector<bool>{true, true, true, false}));
  const LlamaConfig gemma2 = parse_family("gemma2");
  EXPECT_EQ(gemma2.score_cap, 50);
  EXPECT_EQ(gemma2.logit_cap, 30);
  EXPECT_EQ(gemma2.query_scalar, 256);
  EXPECT_EQ(gemma2.windowed, (std::vector<bool>{true, false, true, false}));
  EXPECT_TRUE(gemma2.tied);
  EXPECT_EQ(parse_family("gemma2", {{"final_logit_softcapping", nullptr}}).logit_cap, 0);
}

// As torch.nn.Embedding's padding_idx: null is none, a negative one counts from the end.
TEST(ModelConfig, ReadsTheRowOfPadding) {
  EXPECT_EQ(parse_family("llama").padding_row, std::nullopt);
  EXPECT_EQ(parse_family("gemma2").padding_row, 0);
  EXPECT_EQ(parse_family("gemma2", {{"pad_token_id", nullptr}}).padding_row, std::nullopt);
  EXPECT_EQ(parse_family("llama", {{"pad_token_id", 3}}).padding_row, 3);
  EXPECT_EQ(parse_family("llama", {{"pad_token_id", -1}}).padding_row, 255);
  EXPECT_EQ(parse_family("phi3").padding_row, std::nullopt);  // 32000 is of another vocabulary
  EXPECT_THAT(error_message([] { parse_family("llama", {{"pad_token_id", 256}}); }),
              HasSubstr("pad_token_id is '256', but must be below vocab_size, 256"));
}

TEST(ModelConfig, ReadsTheDeviationOfInitialWeights) {
  EXPECT_EQ(parse_family("llama", {{"initializer_range", 0.5}}).initializer_range, 0.5);
  EXPECT_EQ(parse_family("llama", {{"initializer_range", 0}}).initializer_range, 0.02);
  EXPECT_THAT(error_message([] { parse_family("llama", {{"initializer_range", -1}}); }),
              HasSubstr("initializer_range is '-1', but must be a positive number"));
}

TEST(ModelConfig, Phi3TurnsAPartOfEachHead) {
  const LlamaConfig config = parse_family("phi3", {{"partial_rotary_factor", 0.75}});
  EXPECT_EQ(config.rotary_dim, 12);  // of 16
  EXPECT_EQ(parse_model_config(model_config_text(config, DType::f32), "written"),
            ModelConfig(config));
  EXPECT_THAT(error_message([] { parse_family("phi3", {{"partial_rotary_factor", 0.2}}); }),
              HasSubstr("partial_rotary_factor turns 3 of a head's 16 channels"));
}

TEST(ModelConfig, Gemma3HasTwoBases) {
  const LlamaConfig plain = parse_family("gemma3_text");
  EXPECT_EQ(plain.rope_theta, 1e6);
  EXPECT_EQ(plain.window_rope_theta, 1e4);
  EXPECT_EQ(plain.logit_cap, 0);
  EXPECT_TRUE(plain.windowed.empty());  // the sixth would be the first without
  EXPECT_EQ(parse_family("gemma3_text", {{"sliding_window_pattern", 2}}).windowed,
            (std::vector<bool>{true, false, true, false}));
  const json kinds = {
      {"full_attention", {{"rope_theta", 50.0}, {"rope_type", "linear"}, {"factor", 8.0}}},
      {"sliding_attention", {{"rope_theta", 20.0}, {"rope_type", "default"}}}};
  const LlamaConfig both = parse_family("gemma3_text", {{"rope_parameters", kinds}});
  EXPECT_EQ(both.rope_theta, 50);
  EXPECT_EQ(both.window_rope_theta, 20);
  EXPECT_EQ(both.rope_scaling, RopeScaling(LinearRopeScaling{8}));
  const auto message = [](const json& more) {
    return error_message([&] { parse_family("gemma3_text", more); });
  };
  EXPECT_THAT(message({{"rope_parameters", {{"rope_theta", 5.0}}}}),
              HasSubstr("rope_theta is '5.0', but it must be given in 'full_attention'"));
  EXPECT_THAT(message({{"attn_logit_softcapping", 50.0}}), HasSubstr("have no cap"));
}

TEST(ModelConfig, WindowsAreOfLayers) {
  const json on = {{"use_sliding_window", true}, {"sliding_window", 9}, {"max_window_layers", 3}};
  const LlamaConfig upper = parse_family("qwen2", on);
  EXPECT_EQ(upper.window, 9);
  EXPECT_EQ(upper.windowed, (std::vector<bool>{false, false, false, true}));
  json types = on;
  types["layer_types"] =
      json::array({"sliding_attention", "full_attention", "full_attention", "full_attention"});
  EXPECT_EQ(parse_family("qwen3", types).windowed, (std::vector<bool>{true, false, false, false}));
  types["layer_types"] = json::array({"chunked_attention"});
  EXPECT_THAT(error_message([&] { parse_family("qwen2", types); }),
              HasSubstr("layer_types is '[\"chunked_attention\"]', but must be 'full_attention'"));
}

TEST(ModelConfig, ReadsLongrope) {
  const auto lists = [](int first_long) -> json {
    return {{"type", "su"},
            {"short_factor", {1, 1, 1, 1, 2, 2, 2, 3}},
            {"long_factor", {first_long, 2, 2, 2, 4, 4, 8, 9}}};
  };
  json phi3 = {{"rope_scaling", lists(1)},
               {"original_max_position_embeddings", 256},
               {"max_position_embeddings", 4096}};
  LongRopeScaling expected{.short_factors = {1, 1, 1, 1, 2, 2, 2, 3},
                           .long_factors = {1, 2, 2, 2, 4, 4, 8, 9},
                           .attention_factor = std::sqrt(1 + std::log(16.0) / std::log(256.0)),
                           .original_max_positions = 256};
  const LlamaConfig config = parse_family("phi3", phi3);
  EXPECT_EQ(config.rope_scaling, RopeScaling(expected));
  EXPECT_EQ(parse_model_config(model_config_text(config, DType::f32), "written"),
            ModelConfig(config));

  const auto message = [&] { return error_message([&] { parse_family("phi3", phi3); }); };
  phi3["rope_scaling"] = lists(0);
  EXPECT_THAT(message(), HasSubstr("rope long_factor is 0.0, but must be a positive number"));
  phi3["rope_scaling"]["long_factor"] = {1, 2};
  EXPECT_THAT(message(), HasSubstr("rope long_factor has 2 numbers, but heads of which 16 channels "
                                   "turn need 8"));
  phi3["rope_scaling"]["long_factor"] = 2;
  EXPECT_THAT(message(), HasSubstr("must be a list of numbers"));
  phi3["rope_scaling"] = lists(1);
  phi3.erase("original_max_position_embeddings");
  EXPECT_THAT(message(), HasSubstr("original_max_position_embeddings is missing"));
  phi3["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_THAT(message(), HasSubstr("'default' or 'longrope' only"));
}

TEST(ModelConfig, ReadsMixturesOfExperts) {
  const LlamaConfig mixtral = parse_family("mixtral");
  EXPECT_EQ(mixtral.window, 0);
  EXPECT_EQ(mixtral.rope_theta, 1e6);
  const Experts own{.count = 8,
                    .chosen = 2,
                    .mlp = 96,
                    .normalised = true,
                    .names = ExpertNames::block_sparse_moe};
  EXPECT_EQ(mixtral.experts, own);
  const Experts olmoe{.count = 64, .chosen = 8, .mlp = 96};
  EXPECT_EQ(parse_family("olmoe").experts, olmoe);

  const Experts qwen3{.count = 128, .chosen = 8, .mlp = 768};
  EXPECT_EQ(parse_family("qwen3_moe").experts, qwen3);
  json some = {{"num_experts", 16}, {"decoder_sparse_step", 2}, {"norm_topk_prob", true}};
  EXPECT_EQ(parse_family("qwen3_moe", {{"num_local_experts", 16}}).experts->count, 16);
  const auto qwen3_some = [&] { return *parse_family("qwen3_moe", some).experts; };
  EXPECT_TRUE(qwen3_some().normalised);
  EXPECT_EQ(qwen3_some().layers, (std::vector<bool>{false, true, false, true}));
  some["mlp_only_layers"] = {1};
  EXPECT_EQ(qwen3_some().layers, (std::vector<bool>{false, false, false, true}));
}

TEST(ModelConfig, SaysWhichExpertsItCannotHave) {
  const auto message = [](const char* type, const json& more) {
    return error_message([&] { parse_family(type, more); });
  };
  EXPECT_THAT(message("mixtral", {{"output_router_logits", true}}),
              HasSubstr("output_router_logits is 'true', but only false is supported (it adds the "
                        "router's auxiliary loss"));
  EXPECT_THAT(message("mixtral", {{"router_jitter_noise", 0.1}}), HasSubstr("only 0 is supported"));
  EXPECT_THAT(message("mixtral", {{"num_experts_per_tok", 9}}),
              HasSubstr("num_experts_per_tok is 9, but must be from 1 to num_experts, 8"));
  EXPECT_THAT(message("mixtral", {{"num_local_experts", 0}}), HasSubstr("num_experts is 0"));
  EXPECT_THAT(message("mixtral", {{"num_local_experts", 30000}}),
              HasSubstr("num_experts (30000) in 4 layers is more than 100000 experts"));
  EXPECT_THAT(message("mixtral", {{"num_local_experts", 20000}, {"intermediate_size", 100000000}}),
              HasSubstr("more than 2^40 weights"));
  EXPECT_THAT(message("olmoe", {{"clip_qkv", 8.0}}), HasSubstr("clip_qkv is '8.0'"));
  EXPECT_THAT(message("qwen3_moe", {{"mlp_only_layers", {4}}}),
              HasSubstr("mlp_only_layers is '[4]', but must be a list of layers"));
  EXPECT_THAT(message("qwen3_moe", {{"decoder_sparse_step", 0}}), HasSubstr("at least 1"));
}

TEST(ModelConfig, EachArchitectureIsWrittenAndReadBack) {
  for (const char* type : {"llama", "qwen2", "qwen3", "mistral", "olmo2", "phi3", "smollm3",
                           "gemma2", "gemma3_text", "mixtral", "olmoe", "qwen3_moe"}) {
    SCOPED_TRACE(type);
    json object = family(type);
    const auto is_one_of = [&](std::initializer_list<std::string_view> types) {
      return std::ranges::find(types, std::string_view(type)) != types.end();
    };
    if (!is_one_of({"phi3"}))
      object["rope_scaling"] = {
          {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
    if (!is_one_of({"mistral", "mixtral", "phi3", "qwen2"})) object["attention_bias"] = true;
    if (is_one_of({"llama", "smollm3"})) object["mlp_bias"] = true;
    if (is_one_of({"qwen2", "qwen3", "qwen3_moe", "smollm3"})) object["use_sliding_window"] = true;
    if (!is_one_of({"llama", "olmo2", "olmoe"})) object["sliding_window"] = 12;
    if (is_one_of({"qwen2", "qwen3"})) object["max_window_layers"] = 0;
    if (is_one_of({"qwen3_moe"})) object["mlp_only_layers"] = {2};
    object["initializer_range"] = 0.5;
    object["pad_token_id"] = 7;
    const ModelConfig config = parse_llama(object);
    EXPECT_EQ(parse_model_config(model_config_text(config, DType::f32), "written"), config);
  }
}

TEST(ModelConfig, RefusesToWriteWhatAnArchitectureHasNot) {
  LlamaConfig config = small_llama();
  config.query_key_norm = QueryKeyNorm::head;
  EXPECT_THAT(error_message([&] { model_config_text(config, DType::f32); }),
              HasSubstr("LlamaForCausalLM has not all of the settings"));
  config = small_llama();
  config.architecture = "MixtralForCausalLM";
  EXPECT_THAT(error_message([&] { model_config_text(config, DType::f32); }),
              HasSubstr("num_experts is 0"));
  config.architecture = "NoSuchForCausalLM";
  EXPECT_THAT(error_message([&] { model_config_text(config, DType::f32); }),
              HasSubstr("architecture is 'NoSuchForCausalLM', but only LlamaForCausalLM, "));
}

TEST(ModelConfig, ReadsScaledRope) {
  const auto with = [](const json& scaling) {
    return *parse_family("llama", {{"rope_scaling", scaling}}).rope_scaling;
  };
  EXPECT_EQ(with({{"type", "linear"}, {"factor", 2.5}}), RopeScaling(LinearRopeScaling{2.5}));
  EXPECT_EQ(with({{"rope_type", "dynamic"}, {"factor", 3.0}}), RopeScaling(DynamicRopeScaling{3}));
  json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  YarnRopeScaling expected;
  expected.factor = 4;
  expected.original_max_positions = 32;
  expected.attention_factor = 0.1 * std::log(4.0) + 1;
  EXPECT_EQ(with(yarn), RopeScaling(expected));
  yarn["attention_factor"] = 1.5;
  expected.attention_factor = 1.5;
  EXPECT_EQ(with(yarn), RopeScaling(expected));
  const json base_one = {{"rope_scaling", yarn}, {"rope_theta", 1.0}};
  EXPECT_THAT(error_message([&] { parse_family("llama", base_one); }),
              HasSubstr("rope_theta is 1.0, but rope type 'yarn' needs more than 1"));
  EXPECT_THAT(error_message([&] { parse_family("phi3", {{"rope_scaling", yarn}}); }),
              HasSubstr("Phi-3 has RoPE of type 'default' or 'longrope' only"));
}

TEST(ModelConfig, RefusesContradictions) {
  EXPECT_THAT(message_with("/num_key_value_heads", 3),
              HasSubstr("num_key_value_heads (3) must divide num_attention_heads (8)"));
  EXPECT_THAT(message_with("/head_dim", 7), HasSubstr("head_dim is 7, but must be even"));
  EXPECT_THAT(message_with("/n_head", 7, kGpt2), HasSubstr("n_head (7) must divide n_embd (768)"));
  EXPECT_THAT(message_with("/rope_theta", 1.0, kLlama5),
              HasSubstr("rope_theta is '500000.0', but rope_theta outside it is 1.0"));
  EXPECT_THAT(message_with("/rope_scaling", {{"rope_type", "default"}}, kLlama5),
              HasSubstr("both rope_parameters and rope_scaling"));
  EXPECT_THAT(message_with("/rope_scaling/low_freq_factor", 4.0),
              HasSubstr("low_freq_factor (4.0) must be below high_freq_factor (4.0)"));
  EXPECT_THAT(message_with("/rope_scaling/factor", 0.5), HasSubstr("must be at least 1"));
  json object = json::parse(kLlama4);
  object.erase("head_dim");
  object["num_attention_heads"] = 6;
  EXPECT_THAT(error_message([&] { parse_llama(object); }),
              HasSubstr("num_attention_heads (6) must divide hidden_size (64)"));
}

TEST(ModelConfig, RefusesValuesOfNoSense) {
  const std::vector<std::pair<json, std::string>> bad_sizes = {
      {0, "is 0, but must be from 1"},
      {-8, "is -8, but must be from 1"},
      {4294967296, "is 4294967296, but must be from 1 to "},
      {UINT64_MAX, "is '18446744073709551615', but must be a whole number"},
      {8.5, "is '8.5', but must be a whole number"},
      {"8", "must be a whole number"},
      {json::array({8}), "must be a whole number"},
      {true, "must be a whole number"},
  };
  for (const char* name :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const auto& [value, message] : bad_sizes) {
      EXPECT_THAT(message_with(("/" + std::string(name)).c_str(), value),
                  AllOf(StartsWith("config.json: "), HasSubstr(name), HasSubstr(message)));
    }
  }
  for (const char* name : {"n_embd", "n_layer", "n_head", "n_positions", "n_inner", "vocab_size"}) {
    for (const auto& [value, message] : bad_sizes) {
      EXPECT_THAT(message_with(("/" + std::string(name)).c_str(), value, kGpt2),
                  AllOf(StartsWith("config.json: "), HasSubstr(name)))
          << value;
    }
  }
  for (const char* name : {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
                           "num_attention_heads"}) {
    EXPECT_THAT(message_with(("/" + std::string(name)).c_str(), nullptr),
                HasSubstr(std::string(name) + " is missing, but must be a whole number"));
  }
  EXPECT_THAT(message_with("/rms_norm_eps", 0.0), HasSubstr("must be a positive number"));
  EXPECT_THAT(message_with("/rms_norm_eps", "small"), HasSubstr("must be a number"));
  EXPECT_THAT(message_with("/layer_norm_epsilon", -1e-5, kGpt2), HasSubstr("positive number"));
  EXPECT_THAT(message_with("/rope_theta", -1), HasSubstr("must be a positive number"));
  EXPECT_THAT(message_with("/rope_scaling/factor", nullptr), HasSubstr("factor is missing"));
  EXPECT_THAT(message_with("/rope_scaling", 7), HasSubstr("rope_scaling: not a JSON object"));
  EXPECT_THAT(message_with("/tie_word_embeddings", "yes"), HasSubstr("must be true or false"));
  json huge = json::parse(kLlama4);
  huge["vocab_size"] = 2147483647;
  huge["hidden_size"] = 2147483646;
  EXPECT_THAT(error_message([&] { parse_llama(huge); }), HasSubstr("more than 2^40 weights"));
}

TEST(ModelConfig, RefusesMoreLayersAndWeightsThanAnyModelHas) {
  EXPECT_THAT(message_with("/vocab_size", 4294967296), HasSubstr("from 1 to 2147483647"));
  EXPECT_THAT(message_with("/num_hidden_layers", 10001), HasSubstr("from 1 to 10000"));
  EXPECT_THAT(message_with("/n_layer", 2000000000, kGpt2), HasSubstr("from 1 to 10000"));
  // Each tensor may be that large, all of them together may not.
  json object = json::parse(kLlama4);
  object["num_hidden_layers"] = 10000;
  EXPECT_EQ(parse_llama(object).layers, 10000);
  object["hidden_size"] = 100000;
  object["intermediate_size"] = 1000;
  EXPECT_THAT(error_message([&] { parse_llama(object); }),
              AllOf(HasSubstr("weights, more than 2^40"), HasSubstr("make it smaller")));
  object["num_hidden_layers"] = 1;
  EXPECT_EQ(error_message([&] { parse_llama(object); }), "");
}

TEST(ModelConfig, ReadsAFolder) {
  const TempFolder folder;
  EXPECT_THAT(error_message([&] { read_model_config(folder.path()); }),
              AllOf(HasSubstr("cannot read"), HasSubstr("config.json: No such file")));
  write_file_atomically(folder / "config.json", kLlama5);
  EXPECT_EQ(read_model_config(folder.path()), ModelConfig(small_llama()));
}

// Whatever happens to the text, the result is a config that passes the checks, or one line of
// Error.
TEST(ModelConfig, SurvivesSeededMutations) {
  const std::vector<std::string> originals = {kLlama4, kLlama5, kGpt2, family("gemma2").dump(2),
                                              family("smollm3").dump(2)};
  const std::vector<std::string> pieces = {
      "0",    "-1",       "1e-5", "1e400", "2147483648", "9223372036854775808",
      "null", "true",     "\"\"", "[]",    "{}",         "[",
      "{",    "}",        "\"",   ",",     ":",          "\n",
      "\xff", "\"yarn\"", "0.5",  "-0",    "NaN"};
  constexpr uint64_t kSeed = 20240608;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  int accepted = 0;
  constexpr int kRuns = 8000;
  for (int run = 0; run < kRuns; ++run) {
    std::string text = originals[below(originals.size())];
    if (below(2) == 0) {  // an edit of characters
      for (size_t edits = 1 + below(3); edits > 0 && !text.empty(); --edits) {
        const size_t place = below(text.size());
        switch (below(4)) {
          case 0: text[place] = static_cast<char>(random()); break;
          case 1: text.resize(place); break;
          case 2: text.insert(place, pieces[below(pieces.size())]); break;
          default: text.erase(place, 1 + below(20)); break;
        }
      }
    } else {  // a valid text with another value
      const size_t colon = text.find(": ", below(text.size() - 40));
      const size_t end = colon == std::string::npos ? colon : text.find_first_of(",\n", colon);
      if (end != std::string::npos) {
        text.replace(colon + 2, end - colon - 2, pieces[below(pieces.size())]);
      }
    }
    try {
      check_model_config(parse_model_config(text, "config.json"), "accepted");
      ++accepted;
    } catch (const Error& error) {
      ASSERT_THAT(error.what(), StartsWith("config.json: ")) << "run " << run;
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "run " << run;
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, kRuns * 3 / 4);
}

}  // namespace
}  // namespace coda::io
