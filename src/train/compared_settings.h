// SPDX-License-Identifier: Apache-2.0
// The settings that must be equal in all processes of a training run, so that they exchange the
// same tensors: options, the model's parameters, and the initial state. Communicator::require_same
// compares them.
#pragma once

#include <string>

#include "coda/communicator.h"
#include "coda/model_trainer.h"
#include "train/exchange_plan.h"

namespace coda {

// `rates`: of the backend. Other rates make another plan, as on a mix of GPUs.
Settings compared_settings(const TrainOptions& options, const Weights& weights, const Rates& rates);
// Includes the data's fingerprint.
Settings compared_settings(const ModelTrainSettings& settings, const Tokens& tokens);
Settings compared_settings(const ExchangePlan& plan);
// Digests of names, shapes and values.
Settings compared_state(const Trainer& trainer);

}  // namespace coda
