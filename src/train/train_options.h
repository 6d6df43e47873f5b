// SPDX-License-Identifier: Apache-2.0
// A language model's settings, completed for the trainer of any graph.
#pragma once

#include "coda/model_trainer.h"

namespace coda {

// The name that a plan has ModelGraph::dropped under.
constexpr const char* kDropped = "dropped";

// Throws Error for sizes that the model does not allow.
std::unique_ptr<ModelGraph> model_of(const ModelTrainSettings& settings);
// Sets the options that follow from the model: `sizes` and `outputs`.
void set_step(ModelTrainSettings& settings, const ModelGraph& model);

}  // namespace coda
