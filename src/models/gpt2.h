// SPDX-License-Identifier: Apache-2.0
// GPT2LMHeadModel as a graph: LayerNorm and biases everywhere, learned positions, GELU (tanh form),
// Conv1D weights [in, out] with q, k and v concatenated into one GEMM, a head that is tied to the
// embedding or has its own weight.
#pragma once

#include <memory>
#include <string>

#include "coda/model_config.h"
#include "coda/models.h"

namespace coda {

std::unique_ptr<ModelGraph> build(const Gpt2Config& config, const ModelOptions& options);

// The number of weights; sizes must have been checked.
int64_t parameter_count(const Gpt2Config& config);
int64_t longest_sequence(const Gpt2Config& config);
// Weights that a token is not multiplied by: of tables that are looked up only.
int64_t unused_by_a_token(const Gpt2Config& config);
// Of all heads of a layer.
int64_t attention_columns(const Gpt2Config& config);
// For people, of one line: as description_of (coda/models.h).
std::string description(const Gpt2Config& config);

}  // namespace coda
