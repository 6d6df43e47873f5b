// SPDX-License-Identifier: Apache-2.0
// From a language model's settings to those of the trainer of any graph.
#pragma once

#include "coda/model_trainer.h"

namespace coda {

TrainOptions train_options_of(const ModelTrainSettings& settings);

}  // namespace coda
