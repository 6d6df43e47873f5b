// SPDX-License-Identifier: Apache-2.0
// The one place that knows which models exist.
#pragma once

#include <memory>

#include "models/config.h"
#include "models/model_graph.h"

namespace coda {

std::unique_ptr<ModelGraph> build_model(const ModelConfig& config, const ModelOptions& options);

// What the rest of the program asks of any config.
int64_t parameter_count_of(const ModelConfig& config);
int64_t vocabulary_of(const ModelConfig& config);
int64_t longest_sequence_of(const ModelConfig& config);

}  // namespace coda
