// SPDX-License-Identifier: Apache-2.0
#include "io/config_others.h"

#include <algorithm>
#include <string_view>

namespace coda::io {
namespace {

// What logits, losses and gradients do not depend on.
constexpr std::string_view kWithoutEffect[] = {
    // Where it comes from, and how transformers holds it.
    "architectures",
    "model_type",
    "transformers_version",
    "auto_map",
    "torch_dtype",
    "dtype",
    "use_cache",
    "cache_implementation",
    "output_hidden_states",
    "output_attentions",
    "return_dict",
    "use_return_dict",
    "tokenizer_class",
    "prefix",
    "unsloth_version",
    "unsloth_fixed",
    "torchscript",
    "attn_implementation",
    "is_llama_config",
    // The same mathematics in other blocks or types.
    "chunk_size_feed_forward",
    "pretraining_tp",
    "reorder_and_upcast_attn",
    "n_ctx",
    // Ids, for who generates text. That of padding is read where the architecture uses it.
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "decoder_start_token_id",
    "task_specific_params",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "max_length",
    "min_length",
    "max_new_tokens",
    "num_beams",
    "num_beam_groups",
    "num_return_sequences",
    "diversity_penalty",
    "length_penalty",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "early_stopping",
    "bad_words_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "exponential_decay_length_penalty",
    "remove_invalid_values",
    "return_dict_in_generate",
    "output_scores",
    // Heads for other tasks.
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "finetuning_task",
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_proj_to_labels",
    "summary_first_dropout",
    "summary_last_dropout",
    "classifier_dropout",
    // Read with others only: the router's loss is off, the decoder is always one.
    "router_aux_loss_coef",
    "is_decoder",
    "max_window_layers",
};

// What changes the mathematics of some architecture.
constexpr std::string_view kOfOthers[] = {
    "sliding_window",
    "use_sliding_window",
    "layer_types",
    "attention_chunk_size",
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "logit_scale",
    "logits_scaling",
    "embedding_multiplier",
    "residual_multiplier",
    "attention_multiplier",
    "scale_embedding",
    "attention_bias",
    "qkv_bias",
    "use_qkv_bias",
    "mlp_bias",
    "bias",
    "use_bias",
    "lm_head_bias",
    "clip_qkv",
    "use_qk_norm",
    "qk_layernorm",
    "num_experts",
    "num_local_experts",
    "num_experts_per_tok",
    "n_routed_experts",
    "n_shared_experts",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "norm_topk_prob",
    "decoder_sparse_step",
    "mlp_only_layers",
    "output_router_logits",
    "router_jitter_noise",
    "no_rope_layers",
    "rope_scaling",
    "rope_parameters",
    "rope_theta",
    "rope_local_base_freq",
    "rope_interleaved",
    "rotary_pct",
    "rotary_dim",
    "rotary_emb_base",
    "partial_rotary_factor",
    "original_max_position_embeddings",
    "use_mrope",
    "head_dim",
    "v_head_dim",
    "num_key_value_heads",
    "intermediate_size",
    "n_inner",
    "hidden_act",
    "hidden_activation",
    "activation_function",
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "is_causal",
    "is_encoder_decoder",
    "add_cross_attention",
    "cross_attention_hidden_size",
    "tie_encoder_decoder",
    "pruned_heads",
    "use_bidirectional_attention",
    "alibi",
    "use_parallel_residual",
    "parallel_attn",
    "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx",
    "word_embed_proj_dim",
    "do_layer_norm_before",
};

// Whether the setting has no effect: null, false (for is_causal: true), 0, empty, or full attention
// in every layer.
bool is_off(std::string_view name, const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>() == (name == "is_causal");
  if (value.is_number()) return value == (name == "partial_rotary_factor" ? 1 : 0);
  if (name == "layer_types" && value.is_array())
    return std::ranges::all_of(value, [](const auto& one) { return one == "full_attention"; });
  return value.empty();
}

bool has(std::span<const std::string_view> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

std::vector<std::string> unknown_settings(const Settings& settings,
                                          const Architecture& architecture) {
  std::vector<std::string> unknown;
  for (const std::string& name : settings.others()) {
    const nlohmann::json* value = settings.find(name.c_str());
    if (value == nullptr || has(kWithoutEffect, name)) continue;
    if (has(kOfOthers, name)) {
      if (!is_off(name, *value))
        settings.refuse(name.c_str(),
                        std::string(architecture.name) +
                            " has no such setting: remove it if the model was trained without");
    } else if (!name.starts_with('_')) {
      unknown.push_back(name);
    }
  }
  return unknown;
}

std::vector<std::string> dropout_settings(const Settings& settings,
                                          const Architecture& architecture) {
  std::vector<std::string> rates;
  for (const char* name :
       {"attention_dropout", "attn_pdrop", "embd_pdrop", "hidden_dropout", "resid_pdrop"}) {
    const bool is_gpt2 = std::string_view(architecture.model_type) == "gpt2";
    const bool is_default = is_gpt2 && std::string_view(name).ends_with("_pdrop");
    const double rate = settings.number(name, is_default ? 0.1 : 0.0);
    if (rate != 0) rates.push_back(std::string(name) + " " + nlohmann::json(rate).dump());
  }
  return rates;
}

}  // namespace coda::io
