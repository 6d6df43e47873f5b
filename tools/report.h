// SPDX-License-Identifier: Apache-2.0
// Comparisons at the end of a run: with the compressor xz on the same text, and with the unfused
// plan.
#pragma once

#include "coda/backend.h"
#include "coda/model_trainer.h"
#include "coda/text_data.h"

namespace coda::tools {

// Prints bits per byte of `xz -9` for the held-out text alone, and for what it adds when compressed
// together with the training text; next to `bits` of the model. Says so if there is no xz.
void print_compression(const TokenSplit& data, double bits);

// Times training steps of the fused and the unfused plan in turns; prints medians and bytes moved.
void print_fusion(const ModelTrainSettings& settings, const TensorMap& weights,
                  const Tokens& tokens, Backend& backend);

}  // namespace coda::tools
