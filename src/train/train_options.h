// SPDX-License-Identifier: Apache-2.0
// From a language model's settings to those of the trainer of any graph.
#pragma once

#include "coda/model_trainer.h"

namespace coda {

// The name that a plan has ModelGraph::dropped under.
constexpr const char* kDropped = "dropped";

// Throws Error for sizes that the model does not allow.
std::unique_ptr<ModelGraph> model_of(const ModelTrainSettings& settings);
TrainOptions train_options_of(const ModelTrainSettings& settings, const ModelGraph& model);

}  // namespace coda
