// SPDX-License-Identifier: Apache-2.0
// Writes model configs. The reader is in model_config_reader.cc.
#include "io/model_config.h"

#include <nlohmann/json.hpp>

#include "coda/checkpoint.h"
#include "coda/error.h"
#include "io/architecture.h"

namespace coda::io {
namespace {

using nlohmann::ordered_json;

const char* torch_name(DType type) {
  switch (type) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    default: break;
  }
  throw InternalError("model_config_text: weights are f32, bf16 or f16");
}

}  // namespace

std::string model_config_text(const ModelConfig& config, DType weights) {
  check_model_config(config, "model config");
  // torch_dtype is transformers 4's name; 5 reads it too. Other token ids than that of padding are
  // null: with none given, both would assume ids of a tokenizer that these weights may not have.
  const Architecture& architecture = architecture_of(config);
  ordered_json json = {{"architectures", {architecture.name}},
                       {"model_type", architecture.model_type}};
  json.update(architecture.write(config));
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["torch_dtype"] = torch_name(weights);
  json["use_cache"] = true;
  const std::string text = json.dump(2) + "\n";
  require(parse_model_config(text, "model config") == config,
          std::string("model config: ") + architecture.name +
              " has not all of the settings that the model has (give another architecture)");
  return text;
}

std::string config_with_weights(std::string_view text, const ModelConfig& config, DType weights) {
  ordered_json json = ordered_json::parse(text);
  const bool tied = std::visit([](const auto& model) { return model.tied; }, config);
  const auto is_tied = [](const ModelConfig& of) {
    return std::visit([](const auto& model) { return model.tied; }, of);
  };
  if (is_tied(parse_model_config(text, "config.json")) != tied) json["tie_word_embeddings"] = tied;
  // transformers 5 writes dtype, 4 torch_dtype.
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = torch_name(weights);
  return json.dump(2) + "\n";
}

}  // namespace coda::io

namespace coda {

void check_model_config(const ModelConfig& config, const std::string& source) {
  io::architecture_of(config).check(config, source);
}

}  // namespace coda
