// SPDX-License-Identifier: Apache-2.0
// LLaMA and the decoders of its family as graphs, with weights as Hugging Face stores them. The
// graph depends only on the settings of the config; src/io/architecture.h maps architectures to
// settings.
#pragma once

#include <memory>
#include <string>

#include "coda/model_config.h"
#include "coda/models.h"

namespace coda {

std::unique_ptr<ModelGraph> build(const LlamaConfig& config, const ModelOptions& options);

// The number of weights; sizes must have been checked.
int64_t parameter_count(const LlamaConfig& config);
int64_t longest_sequence(const LlamaConfig& config);
int64_t rope_length(const LlamaConfig& config, int64_t length);  // as rope_length_of
// Weights that a token is not multiplied by: of tables that are looked up only, and of experts that
// it has not.
int64_t unused_by_a_token(const LlamaConfig& config);
// Of a token, in all layers.
int64_t expert_choices(const LlamaConfig& config);
// Of all heads of a layer.
int64_t attention_columns(const LlamaConfig& config);
// For people, of one line: as description_of (coda/models.h).
std::string description(const LlamaConfig& config);

}  // namespace coda
