// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX's graph, with the parameter names and layouts of Hugging Face's GPTNeoXForCausalLM.
#pragma once

#include <memory>
#include <string>

#include "coda/models.h"

namespace coda {

std::unique_ptr<ModelGraph> build(const GptNeoxConfig& config, const ModelOptions& options);

// The number of weights; sizes must have been checked.
int64_t parameter_count(const GptNeoxConfig& config);
int64_t longest_sequence(const GptNeoxConfig& config);
// Weights that a token is not multiplied by: of tables that are looked up only.
int64_t unused_by_a_token(const GptNeoxConfig& config);
// Of all heads of a layer.
int64_t attention_columns(const GptNeoxConfig& config);
// For people, of one line: as description_of (coda/models.h).
std::string description(const GptNeoxConfig& config);

}  // namespace coda
