// SPDX-License-Identifier: Apache-2.0
// Reads and writes weights as tensors of safetensors files.
#pragma once

#include <string>
#include <vector>

#include "coda/weights.h"
#include "io/safetensors.h"

namespace coda {

// Throws Error unless all weights of the model are there with the right shapes. Allocates nothing
// by the sizes in config.json, which may be larger than any file.
void require_stored(const ModelGraph& model, const io::StoredTensors& stored);
void require_stored(const ModelConfig& config, const io::StoredTensors& stored);

// The name of a parameter in the file: a model without its head omits the first part of names.
std::string stored_name(const io::StoredTensors& stored, const std::string& name);

// As load_weights for a file, from an open file.
void load_weights(const io::StoredTensors& stored, Weights& weights);

Weights load_weights(const ModelGraph& model, const io::StoredTensors& stored);

// The weights as a checkpoint stores them in fp32.
std::vector<io::TensorToWrite> stored_form(const Weights& weights);

}  // namespace coda
