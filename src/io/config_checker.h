// SPDX-License-Identifier: Apache-2.0
// The ranges of a config's numbers that hold for every model.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "coda/error.h"
#include "coda/models.h"

namespace coda::io {

// Names in messages are config.json's.
struct ConfigChecker {
  // A graph has tens of nodes a layer; no model has a hundredth of these.
  static constexpr int64_t kMostLayers = 10000;
  static constexpr int64_t kMostExperts = 100000;  // of all layers
  static constexpr int64_t kMostWeights = int64_t{1} << 40;

  const std::string& source;

  void layers(const char* name, int64_t value) const {
    if (value >= 1 && value <= kMostLayers) return;
    throw Error(source + ": " + name + " is " + std::to_string(value) + ", but must be from 1 to " +
                std::to_string(kMostLayers));
  }
  // Once the sizes of each tensor are known to be good.
  void weights(const ModelConfig& config) const {
    if (parameter_count_of(config) <= kMostWeights) return;
    throw Error(source + ": the model has " + std::to_string(parameter_count_of(config)) +
                " weights, more than 2^40: make it smaller");
  }

  void size(const char* name, int64_t value) const {
    if (value >= 1 && value <= INT32_MAX) return;
    throw Error(source + ": " + name + " is " + std::to_string(value) +
                ", but must be from 1 to 2147483647");
  }
  void positive(const char* name, double value) const {
    if (std::isfinite(value) && value > 0) return;
    throw Error(source + ": " + name + " is " + nlohmann::json(value).dump() +
                ", but must be a positive number");
  }
  void divides(const char* small, int64_t divisor, const char* large, int64_t value) const {
    if (value % divisor == 0) return;
    throw Error(source + ": " + small + " (" + std::to_string(divisor) + ") must divide " + large +
                " (" + std::to_string(value) + "): change one of the two");
  }
  // Weights of [rows, columns] are addressed in bytes with 64 bits; more than 2^40 elements is a
  // mistake.
  void product(const char* a, int64_t x, const char* b, int64_t y) const {
    if (x <= kMostWeights / y) return;
    throw Error(source + ": " + a + " (" + std::to_string(x) + ") times " + b + " (" +
                std::to_string(y) + ") is more than 2^40 weights in one tensor: make one smaller");
  }
};

}  // namespace coda::io
