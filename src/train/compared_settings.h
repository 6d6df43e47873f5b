// SPDX-License-Identifier: Apache-2.0
// What processes that train together must have alike, so that they exchange the same tensors and
// their sums are of one run: options, the model's parameters, and the state that they start from.
// Communicator::require_same compares it.
#pragma once

#include <string>

#include "coda/communicator.h"
#include "coda/model_trainer.h"
#include "train/exchange_plan.h"

namespace coda {

Settings compared_settings(const TrainOptions& options, const Weights& weights);
// Of the data the fingerprint.
Settings compared_settings(const ModelTrainSettings& settings, const Tokens& tokens);
Settings compared_settings(const ExchangePlan& plan);
// By digests: names, shapes, values.
Settings compared_state(const Trainer& trainer);

}  // namespace coda
