// SPDX-License-Identifier: Apache-2.0
// The tables in docs/memory.md of the memory that training steps of known models take on a GPU:
// this test computes every row, so the page cannot differ from what the library says.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "coda/kernels.h"
#include "coda/rates.h"
#include "coda/step_memory.h"
#include "io/mapped_file.h"
#include "runtime/far_backend.h"

namespace coda {
namespace {

namespace memory_table {

// Plans as for an H200.
class PlannedBackend : public FarBackend {
 public:
  Rates rates() const override { return h200_rates(); }
  int64_t workspace_bytes(const Plan& plan, const DimValues& sizes) override {
    return gpu_workspace_bytes(plan, sizes);
  }
};

struct Case {
  const char* name;
  LlamaConfig model;
};

LlamaConfig model_of(int layers, int hidden, int heads, int kv_heads, int mlp, int vocab,
                     bool tied) {
  LlamaConfig config;
  config.layers = layers;
  config.hidden = hidden;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = hidden / heads;
  config.mlp = mlp;
  config.vocab = vocab;
  config.tied = tied;
  config.max_positions = 2048;
  return config;
}

// "8.41 (12)": GB, and the smallest card that has as many.
std::string cell(int64_t bytes) {
  char text[40];
  const double gb = static_cast<double>(bytes) / 1e9;
  for (const int card : {8, 12, 16, 24, 32, 48, 80, 141}) {
    if (gb > card) continue;
    std::snprintf(text, sizeof text, " | %.1f (%d)", gb, card);
    return text;
  }
  std::snprintf(text, sizeof text, " | %.1f", gb);
  return text;
}

ModelTrainSettings settings_of(const LlamaConfig& model, int64_t batch, int64_t sequence) {
  ModelTrainSettings settings;
  LlamaConfig config = model;
  config.max_positions = sequence;
  settings.model = config;
  settings.storage = DType::bf16;
  settings.batch = batch;
  settings.accumulate = 2;
  settings.sequence = sequence;
  settings.recomputed_layers = kAllLayers;
  return settings;
}

std::string row_of(const Case& one) {
  PlannedBackend backend;
  const ModelTrainSettings settings = settings_of(one.model, 1, 2048);
  const ModelStep step = compile_step(settings, backend.rates());
  const DimValues& sizes = step.settings.sizes;
  const int64_t of_losses = step_memory(settings, backend, true).uses.back().bytes;
  StepPlace place = step_place(step.compiled.plan, sizes, backend, nullptr);
  std::string row = "| " + std::string(one.name);
  const auto add = [&] {
    row += cell(step_memory(step.compiled, sizes, place).bytes() + of_losses);
  };
  add();
  for (OptimizerState& state : place.optimizer.states) state.dtype = DType::bf16;
  add();
  place.optimizer.weights = DType::bf16;
  add();
  place.optimizer.states_on_host = true;
  add();
  return row + " |";
}

// With and without --layers-on-host.
std::string row_of_layers(const Case& one, int64_t batch, int64_t sequence) {
  PlannedBackend backend;
  ModelTrainSettings settings = settings_of(one.model, batch, sequence);
  settings.optimizer = make_optimizer("adamw", {}, DType::bf16);
  settings.optimizer.weights = DType::bf16;
  settings.optimizer.states_on_host = true;
  char start[80];
  std::snprintf(start, sizeof start, "| %s | %d x %d", one.name, static_cast<int>(batch),
                static_cast<int>(sequence));
  std::string row = start + cell(step_memory(settings, backend, true).bytes());
  settings.layers_on_host = true;
  const StepMemory memory = step_memory(settings, backend, true);
  char on_host[40];
  std::snprintf(on_host, sizeof on_host, " | %.1f |",
                static_cast<double>(memory.on_host.back().bytes) / 1e9);
  return row + cell(memory.bytes()) + on_host;
}

const Case kTiny{"Qwen2.5 0.5B", model_of(24, 896, 14, 2, 4864, 151936, true)};
const Case kSmall{"LLaMA 3.2 1B", model_of(16, 2048, 32, 8, 8192, 128256, true)};
const Case kMiddle{"LLaMA 3.2 3B", model_of(28, 3072, 24, 8, 8192, 128256, true)};
const Case kLarge{"LLaMA 3.1 8B", model_of(32, 4096, 32, 8, 14336, 128256, false)};

void expect_on_page(const std::string& row) {
  static const std::string page = io::read_file(CODA_SOURCE_DIR "/docs/memory.md");
  EXPECT_NE(page.find(row + "\n"), std::string::npos) << row;
}

TEST(MemoryTable, OfTheDocsIsWhatTheLibrarySays) {
  for (const Case& one : {kTiny, kSmall, kMiddle, kLarge}) expect_on_page(row_of(one));
}

TEST(MemoryTable, OfLayersOnTheHostIsWhatTheLibrarySays) {
  expect_on_page(row_of_layers(kTiny, 20, 2048));
  expect_on_page(row_of_layers(kSmall, 11, 2048));
  expect_on_page(row_of_layers(kMiddle, 4, 2048));
  expect_on_page(row_of_layers(kMiddle, 1, 32768));
  expect_on_page(row_of_layers(kLarge, 1, 16384));
}

}  // namespace memory_table
}  // namespace
}  // namespace coda
