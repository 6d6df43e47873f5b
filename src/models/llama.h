// SPDX-License-Identifier: Apache-2.0
// LlamaForCausalLM as a graph: separate q, k, v, gate and up weights as Hugging Face stores them.
#pragma once

#include <memory>

#include "coda/model_config.h"
#include "coda/models.h"

namespace coda {

std::unique_ptr<ModelGraph> build_llama(const LlamaConfig& config, const ModelOptions& options);

// Angular steps of the pairs of a head, [head_dim / 2], radians a position, stretched as LLaMA 3
// does if the config asks.
std::vector<double> rope_frequencies(const LlamaConfig& config);

}  // namespace coda
