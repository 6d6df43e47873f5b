// SPDX-License-Identifier: Apache-2.0
// One of the judge's cases opened: the checkpoint, the batch, and what transformers computed.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "base/relative_error.h"
#include "io/model_config.h"
#include "io/safetensors.h"

namespace coda {

inline constexpr double kParityTolerance = 1e-4;

struct HfCase {
  ModelConfig config;
  io::StoredTensors weights;
  io::StoredTensors reference;
  int64_t batch = 0;
  int64_t sequence = 0;

  explicit HfCase(const std::filesystem::path& folder)
      : config(io::read_model_config(folder / "checkpoint")),
        weights(io::open_model_weights(folder / "checkpoint")),
        reference(io::open_safetensors(folder / "reference.safetensors")),
        batch(reference.at("tokens").shape[0]),
        sequence(reference.at("tokens").shape[1]) {}

  std::vector<double> floats(const std::string& name) const {
    return floats_of(reference.at(name));
  }
  std::vector<int32_t> ids(const std::string& name) const {
    const io::StoredTensor& tensor = reference.at(name);
    std::vector<int32_t> values(static_cast<size_t>(tensor.count()));
    io::read_exact(tensor, io::ElementType::i32, tensor.shape,
                   std::as_writable_bytes(std::span(values)));
    return values;
  }
  static std::vector<double> floats_of(const io::StoredTensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.count()));
    io::read_floats(tensor, tensor.shape, values);
    return {values.begin(), values.end()};
  }
};

// Folders of the cases.
inline std::vector<std::filesystem::path> hf_cases(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> cases;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (exists(entry.path() / "reference.safetensors")) cases.push_back(entry.path());
  }
  return cases;
}

// Of fp32 results. (A reference may be 0: scores of a single token have no gradient.)
inline double relative_error(std::span<const float> ours, const std::vector<double>& theirs) {
  return relative_error(std::vector<double>(ours.begin(), ours.end()), theirs);
}

}  // namespace coda
