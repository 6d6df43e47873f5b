// SPDX-License-Identifier: Apache-2.0
// Training from C++: a small LLaMA learns to count, and goes on from a prompt.
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu_backend.h"
#include "train/generate.h"
#include "train/model_trainer.h"

namespace {

// "0 1 2 3 ...", a token a byte.
coda::io::Tokens counting_text() {
  auto text = std::make_shared<std::string>();
  for (int i = 0; i < 2000; ++i) *text += std::to_string(i % 100) + " ";
  coda::io::Tokens tokens;
  tokens.source = "counting";
  tokens.bytes = std::as_bytes(std::span(*text));
  tokens.owner = text;
  return tokens;
}

void run() {
  const coda::io::Tokens tokens = counting_text();
  coda::train::TrainSettings settings;
  settings.model = coda::LlamaConfig{.layers = 2,
                                     .hidden = 64,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 16,
                                     .mlp = 128,
                                     .vocab = 256,
                                     .rope_scaling = {},
                                     .tied = true,
                                     .max_positions = 64};
  settings.batch = 8;
  settings.sequence = 64;
  settings.schedule = {.peak = 1e-2, .floor = 1e-3, .warmup_steps = 10, .total_steps = 300};

  const auto backend = coda::cpu::make_cpu_backend();
  coda::train::ModelTrainer trainer(settings, tokens, *backend);
  while (trainer.step_count < settings.schedule.total_steps) {
    const coda::StepReport report = trainer.step();
    if (trainer.step_count % 50 == 0) {
      std::printf("step %3lld  loss %.4f\n", static_cast<long long>(trainer.step_count),
                  report.loss);
    }
  }

  coda::train::ModelRunner runner(settings.model,
                                  {.task = coda::train::Task::logits, .sequence = 64}, *backend);
  runner.bind(trainer.weights);
  const std::string prompt = "41 42 43 ";
  std::printf("%s|", prompt.c_str());
  coda::train::generate(runner, 64, {prompt.begin(), prompt.end()}, 30, {.temperature = 0},
                        [](int32_t id) { return std::putchar(id) != EOF; });
  std::printf("\n");
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_model: %s\n", error.what());
    return 1;
  }
}
