// SPDX-License-Identifier: Apache-2.0
// What a run compares itself with: the compressor xz on the same text, and its own step without
// fusion.
#pragma once

#include "coda/backend.h"
#include "coda/model_trainer.h"
#include "coda/text_data.h"

namespace coda::tools {

// Prints bits a byte of `xz -9` for the held-out text by itself, and for what it adds to the
// training text when both are one file; beside `bits` of the model. Says so if there is no xz.
void print_compression(const TokenSplit& data, double bits);

// Times steps of the fused and of the unfused plan, in turns, and prints medians and bytes moved.
void print_fusion(const ModelTrainSettings& settings, const TensorMap& weights,
                  const Tokens& tokens, Backend& backend);

}  // namespace coda::tools
