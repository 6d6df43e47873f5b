// SPDX-License-Identifier: Apache-2.0
// Reads config.json. Each setting is required, has transformers' default, or must have the one
// value that we implement; names that we do not know are for other parts of transformers and are
// passed over.
#include <nlohmann/json.hpp>

#include "base/file_error.h"
#include "coda/checkpoint.h"
#include "coda/error.h"
#include "io/json_text.h"
#include "io/mapped_file.h"
#include "io/model_config.h"

namespace coda::io {
namespace {

using nlohmann::json;

// The settings of one JSON object, read by name. A setting that is null counts as absent.
class Settings {
 public:
  Settings(const json& object, std::string source) : object_(object), source_(std::move(source)) {
    require(object.is_object(), source_ +
                                    ": not a JSON object of settings (it must start with "
                                    "'{': fetch or write the file again)");
  }

  const std::string& source() const { return source_; }

  const json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] void refuse(const char* name, const std::string& needed) const {
    const json* value = find(name);
    throw Error(source_ + ": " + name + " is " +
                (value == nullptr ? "missing" : in_quotes(value->dump())) + ", but " + needed);
  }

  int64_t whole(const char* name, std::optional<int64_t> otherwise = std::nullopt) const {
    const json* value = find(name);
    if (value == nullptr && otherwise) return *otherwise;
    const bool is_whole =
        value != nullptr && value->is_number_integer() &&
        !(value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX});
    if (!is_whole) refuse(name, "must be a whole number");
    return value->get<int64_t>();
  }

  double number(const char* name, std::optional<double> otherwise = std::nullopt) const {
    const json* value = find(name);
    if (value == nullptr && otherwise) return *otherwise;
    if (value == nullptr || !value->is_number()) refuse(name, "must be a number");
    return value->get<double>();
  }

  bool flag(const char* name, bool otherwise) const {
    const json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse(name, "must be true or false");
    return value->get<bool>();
  }

  std::string word(const char* name, const char* otherwise) const {
    const json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) refuse(name, "must be a text");
    return value->get<std::string>();
  }

  // What is not implemented must be off.
  void must_be(const char* name, bool needed, const char* why) const {
    if (flag(name, needed) != needed) {
      refuse(name,
             std::string("only ") + (needed ? "true" : "false") + " is supported (" + why + ")");
    }
  }

 private:
  const json& object_;
  std::string source_;
};

// transformers 5 has rope_parameters with everything; 4 has rope_theta, and rope_scaling with the
// rest ("type" is an older name of "rope_type").
void read_rope(const Settings& settings, LlamaConfig& config) {
  const json* parameters = settings.find("rope_parameters");
  const json* scaling = settings.find("rope_scaling");
  if (parameters != nullptr && scaling != nullptr) {
    throw Error(settings.source() +
                ": both rope_parameters and rope_scaling are given (remove one of the two)");
  }
  config.rope_theta = settings.number("rope_theta", 10000.0);
  const json* object = parameters != nullptr ? parameters : scaling;
  if (object == nullptr) return;
  const Settings rope(*object, settings.source() + (parameters != nullptr ? ": rope_parameters"
                                                                          : ": rope_scaling"));
  const double theta = rope.number("rope_theta", config.rope_theta);
  if (settings.find("rope_theta") != nullptr && theta != config.rope_theta) {
    rope.refuse("rope_theta", "rope_theta outside it is " + json(config.rope_theta).dump() +
                                  " (remove one of the two)");
  }
  config.rope_theta = theta;
  if (rope.number("partial_rotary_factor", 1.0) != 1.0) {
    rope.refuse("partial_rotary_factor", "only 1 is supported (all channels of a head turn)");
  }
  const char* type_name = rope.find("rope_type") != nullptr ? "rope_type" : "type";
  const std::string type = rope.word(type_name, "default");
  if (type == "default") return;
  if (type != "llama3") rope.refuse(type_name, "only 'default' and 'llama3' are supported");
  Llama3RopeScaling llama3;
  llama3.factor = rope.number("factor");
  llama3.low_freq_factor = rope.number("low_freq_factor");
  llama3.high_freq_factor = rope.number("high_freq_factor");
  llama3.original_max_positions = rope.whole("original_max_position_embeddings");
  config.rope_scaling = llama3;
}

LlamaConfig read_llama(const Settings& settings) {
  const std::string activation = settings.word("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    settings.refuse("hidden_act", "only 'silu' is supported");
  }
  settings.must_be("attention_bias", false, "attention's products have no bias");
  settings.must_be("mlp_bias", false, "the MLP's products have no bias");
  LlamaConfig config;
  config.layers = settings.whole("num_hidden_layers");
  config.hidden = settings.whole("hidden_size");
  config.heads = settings.whole("num_attention_heads");
  config.kv_heads = settings.whole("num_key_value_heads", config.heads);
  if (const json* head_dim = settings.find("head_dim"); head_dim == nullptr) {
    if (config.heads < 1 || config.hidden % config.heads != 0) {
      throw Error(settings.source() + ": num_attention_heads (" + std::to_string(config.heads) +
                  ") must divide hidden_size (" + std::to_string(config.hidden) +
                  ") where no head_dim is given: change one of them");
    }
    config.head_dim = config.hidden / config.heads;
  } else {
    config.head_dim = settings.whole("head_dim");
  }
  config.mlp = settings.whole("intermediate_size");
  config.vocab = settings.whole("vocab_size");
  config.eps = settings.number("rms_norm_eps", 1e-6);
  config.max_positions = settings.whole("max_position_embeddings", 2048);
  config.tied = settings.flag("tie_word_embeddings", false);
  read_rope(settings, config);
  return config;
}

Gpt2Config read_gpt2(const Settings& settings) {
  const std::string activation = settings.word("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    settings.refuse("activation_function",
                    "only 'gelu_new' and 'gelu_pytorch_tanh' (one function) are supported");
  }
  settings.must_be("tie_word_embeddings", true, "the head's weight is the embedding's");
  settings.must_be("scale_attn_weights", true, "scores are divided by the root of the head size");
  settings.must_be("scale_attn_by_inverse_layer_idx", false, "all layers scale alike");
  settings.must_be("add_cross_attention", false, "there is no encoder");
  Gpt2Config config;
  config.layers = settings.whole("n_layer");
  config.hidden = settings.whole("n_embd");
  config.heads = settings.whole("n_head");
  config.vocab = settings.whole("vocab_size");
  config.positions = settings.whole("n_positions", 1024);
  if (settings.find("n_inner") != nullptr) {
    config.mlp = settings.whole("n_inner");
  } else if (__builtin_mul_overflow(config.hidden, int64_t{4}, &config.mlp)) {
    settings.refuse("n_embd", "must be from 1 to 2147483647");
  }
  config.eps = settings.number("layer_norm_epsilon", 1e-5);
  return config;
}

// "LlamaForCausalLM", from architectures or, where a config has none, from model_type.
std::string architecture_of(const Settings& settings) {
  constexpr const char* kSupported = "only LlamaForCausalLM and GPT2LMHeadModel are supported";
  const std::string type = settings.word("model_type", "");
  std::string of_type = type == "llama"  ? "LlamaForCausalLM"
                        : type == "gpt2" ? "GPT2LMHeadModel"
                                         : "";
  if (const json* list = settings.find("architectures"); list != nullptr) {
    if (!list->is_array() || list->size() != 1 || !list->front().is_string()) {
      settings.refuse("architectures", "must be a list of one name");
    }
    const std::string& name = list->front().get_ref<const std::string&>();
    if (name != "LlamaForCausalLM" && name != "GPT2LMHeadModel") {
      settings.refuse("architectures", kSupported);
    }
    if (!type.empty() && of_type != name) {
      settings.refuse("model_type", "architectures is " + list->dump() + " (" + kSupported + ")");
    }
    return name;
  }
  if (of_type.empty()) settings.refuse("model_type", kSupported);
  return of_type;
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, const std::string& source) {
  const json object = parse_json(text, source);
  const Settings settings(object, source);
  const std::string architecture = architecture_of(settings);
  if (settings.find("quantization_config") != nullptr) {
    throw Error(source +
                ": quantization_config is given, but quantized weights are not supported (convert "
                "the checkpoint to F32, BF16 or F16)");
  }
  ModelConfig config;
  if (architecture == "LlamaForCausalLM") {
    config = read_llama(settings);
  } else {
    config = read_gpt2(settings);
  }
  check_model_config(config, source);
  return config;
}

ModelConfig read_model_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  return parse_model_config(read_file(file), printable(file));
}

}  // namespace coda::io
