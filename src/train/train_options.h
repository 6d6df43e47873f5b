// SPDX-License-Identifier: Apache-2.0
// Converts a language model's settings to those of the general trainer.
#pragma once

#include "coda/model_trainer.h"

namespace coda {

// The name of ModelGraph::dropped in a plan.
constexpr const char* kDropped = "dropped";

// Throws Error for sizes that the model does not support.
std::unique_ptr<ModelGraph> model_of(const ModelTrainSettings& settings);
// Sets the options that follow from the model: `sizes` and `outputs`.
void set_step(ModelTrainSettings& settings, const ModelGraph& model);

}  // namespace coda
