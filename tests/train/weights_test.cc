// SPDX-License-Identifier: Apache-2.0
#include "coda/weights.h"

#include <gtest/gtest.h>

#include "coda/error.h"
#include "coda/models.h"
#include "io/temp_folder.h"
#include "train/stored_weights.h"

namespace coda {
namespace {

Gpt2Config tiny_gpt2() {
  return {.layers = 1, .hidden = 8, .heads = 2, .vocab = 11, .positions = 6, .mlp = 12};
}

// The weights after a way through a file, with names (and missing ones) as `rename` has them.
template <class Rename>
Weights through_a_file(const ModelGraph& model, const Weights& weights, const Rename& rename) {
  const TempFolder folder;
  std::vector<io::TensorToWrite> tensors;
  for (io::TensorToWrite& tensor : stored_form(weights)) {
    tensor.name = rename(tensor.name);
    if (!tensor.name.empty()) tensors.push_back(tensor);
  }
  const auto file = folder / "model.safetensors";
  io::write_safetensors(file, tensors);
  Weights loaded = initial_weights(model, 0);
  load_weights(file, loaded);
  return loaded;
}

TEST(Weights, ComeBackFromAFileWithAndWithoutTheFirstPartOfTheirNames) {
  const auto model = build_model(tiny_gpt2(), {.storage = DType::bf16});
  const Weights weights = initial_weights(*model, 5);
  for (bool has_first_part : {true, false}) {
    const Weights loaded = through_a_file(*model, weights, [&](const std::string& name) {
      return has_first_part ? name : name.substr(name.find('.') + 1);
    });
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(weights[i].values, loaded[i].values) << weights[i].name;
      EXPECT_EQ(weights[i].bf16, loaded[i].bf16) << weights[i].name;
    }
  }
}

TEST(Weights, AMissingOneIsNamed) {
  const auto model = build_model(tiny_gpt2(), {});
  const Weights weights = initial_weights(*model, 5);
  const std::string missing = "transformer.h.0.mlp.c_fc.bias";
  try {
    through_a_file(*model, weights,
                   [&](const std::string& name) { return name == missing ? "" : name; });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(missing), std::string::npos) << error.what();
  }
}

TEST(Weights, MatricesOfABf16ModelHaveARoundedCopyAndVectorsHaveNone) {
  const auto model = build_model(tiny_gpt2(), {.storage = DType::bf16});
  for (WeightTensor& w : initial_weights(*model, 5)) {
    const bool is_matrix = w.shape.size() == 2;
    EXPECT_EQ(w.bf16.size(), is_matrix ? w.values.size() : 0) << w.name;
    EXPECT_EQ(w.view().dtype, is_matrix ? DType::bf16 : DType::f32) << w.name;
  }
}

}  // namespace
}  // namespace coda
