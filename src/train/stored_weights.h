// SPDX-License-Identifier: Apache-2.0
// Weights to and from tensors of safetensors files.
#pragma once

#include <string>
#include <vector>

#include "coda/weights.h"
#include "io/safetensors.h"

namespace coda {

// Throws Error unless all weights of the model are there in their shapes. Nothing is made in the
// model's sizes: those are a config.json's, which may ask for more than any file holds.
void require_stored(const ModelGraph& model, const io::StoredTensors& stored);
void require_stored(const ModelConfig& config, const io::StoredTensors& stored);

// What a parameter is called there: the model without its head leaves the first part of a name out.
std::string stored_name(const io::StoredTensors& stored, const std::string& name);

// As load_weights of a file, from one that is open.
void load_weights(const io::StoredTensors& stored, Weights& weights);

Weights load_weights(const ModelGraph& model, const io::StoredTensors& stored);

// The weights as a checkpoint stores them, in fp32.
std::vector<io::TensorToWrite> stored_form(const Weights& weights);

}  // namespace coda
