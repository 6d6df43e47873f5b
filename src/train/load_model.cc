// SPDX-License-Identifier: Apache-2.0
// Loads models from Hugging Face folders, and collects notes about them.
#include <algorithm>
#include <set>

#include "coda/checkpoint.h"
#include "coda/error.h"
#include "coda/messages.h"
#include "coda/model_runner.h"
#include "io/model_config.h"
#include "train/checkpoint.h"
#include "train/stored_weights.h"

namespace coda {
namespace {

constexpr size_t kMostNames = 4;  // in a note

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMostNames ? text + ", ..." : text;
}

// Buffers that older versions of transformers saved with the weights.
bool is_buffer(const std::string& name) {
  for (const char* end : {"rotary_emb.inv_freq", "attn.bias", "attn.masked_bias", "attention.bias",
                          "attention.masked_bias"})
    if (name.ends_with(end)) return true;
  return false;
}

bool is_tied(const ModelConfig& config) {
  return std::visit([](const auto& model) { return model.tied; }, config);
}

// Tensors of a folder that are not parameters of the model; a tied head is the embedding.
std::vector<std::string> unused_tensors(const ModelConfig& config,
                                        const io::StoredTensors& stored) {
  std::set<std::string> used;
  const auto model = build_model(config, {.positions = 1});
  for (const ModelParameter& p : model->parameters) used.insert(stored_name(stored, p.name));
  if (is_tied(config)) used.insert({"lm_head.weight", "embed_out.weight"});
  std::vector<std::string> unused;
  for (const auto& [name, tensor] : stored.tensors)
    if (!used.contains(name) && !is_buffer(name)) unused.push_back(name);
  return unused;
}

}  // namespace

std::vector<std::string> model_notes(const std::filesystem::path& folder) {
  const std::filesystem::path found = find_model_folder(folder);
  const std::string config_file = printable(found / "config.json");
  const io::ReadConfig read = io::read_config(found);
  const ModelConfig config = io::read_model_config(found);
  const io::StoredTensors stored = io::open_model_weights(found);
  require_stored(config, stored);
  std::vector<std::string> notes;
  if (!read.unknown.empty())
    notes.push_back(config_file +
                    ": settings that are not known are passed over: " + list_of(read.unknown));
  if (is_tied(read.config) && !is_tied(config))
    notes.push_back(config_file +
                    ": tie_word_embeddings is true, but the weights have a head of their own, "
                    "which is used (set it to false)");
  if (const auto unused = unused_tensors(config, stored); !unused.empty())
    notes.push_back(stored.source + ": " + std::to_string(unused.size()) +
                    " tensors are not of the model that config.json names, and are left out: " +
                    list_of(unused));
  return notes;
}

std::vector<std::string> training_notes(const std::filesystem::path& folder) {
  const std::filesystem::path found = find_model_folder(folder);
  const std::vector<std::string> rates = io::read_config(found).dropouts;
  if (rates.empty()) return {};
  return {printable(found / "config.json") + ": it asks for dropout (" + list_of(rates) +
          "), which is not there: the model is trained without dropout"};
}

Weights load_model_weights(const std::filesystem::path& folder, DType storage) {
  const std::filesystem::path found = find_model_folder(folder);
  const ModelConfig config = io::read_model_config(found);
  const io::StoredTensors stored = io::open_model_weights(found);
  require_stored(config, stored);
  return load_weights(*build_model(config, {.storage = storage, .positions = 1}), stored);
}

LoadedModel load_model(const std::filesystem::path& folder, const ModelRunnerOptions& options,
                       Backend& backend) {
  const ModelConfig config = io::read_model_config(find_model_folder(folder));
  LoadedModel loaded;
  loaded.weights = load_model_weights(folder, options.storage);
  loaded.runner = std::make_unique<ModelRunner>(config, options, backend);
  loaded.runner->bind(tensors_of(loaded.weights, backend));
  return loaded;
}

}  // namespace coda
