// SPDX-License-Identifier: Apache-2.0
// A small LLaMA learns to count, a token a byte, and goes on from a prompt.
#include <coda/coda.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

constexpr int64_t kSequences = 8;  // of a batch
constexpr int64_t kLength = 64;    // tokens of each

// "0 1 2 3 ...".
std::string counting_text() {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::to_string(i % 100) + " ";
  return text;
}

// Sequences that start anywhere in the text; each token's target is the one behind it.
coda::TensorMap batch_of(const std::string& text, int64_t step) {
  std::vector<int32_t> ids;
  std::vector<int32_t> targets;
  for (int64_t s = 0; s < kSequences; ++s) {
    const int64_t start = (step * 7919 + s * 104729) % (std::ssize(text) - kLength - 1);
    for (int64_t i = start; i < start + kLength; ++i) {
      ids.push_back(text[static_cast<size_t>(i)]);
      targets.push_back(text[static_cast<size_t>(i + 1)]);
    }
  }
  coda::TensorMap batch = {{"ids", coda::Tensor(coda::DType::i32, std::ssize(ids), 1)},
                           {"targets", coda::Tensor(coda::DType::i32, std::ssize(ids), 1)}};
  batch.at("ids").set(ids);
  batch.at("targets").set(targets);
  return batch;
}

void run() {
  const coda::LlamaConfig config = {.layers = 2,
                                    .hidden = 64,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = 16,
                                    .mlp = 128,
                                    .vocab = 256,
                                    .rope_scaling = {},
                                    .tied = true,
                                    .max_positions = kLength};
  const auto model = coda::build_model(config, {.positions = kLength});
  const auto backend = coda::make_backend("cpu");
  coda::TrainOptions options;
  options.sizes = {{"M", kSequences * kLength}, {"T", kLength}};
  options.schedule = {.peak = 1e-2, .floor = 1e-3, .warmup_steps = 10, .total_steps = 300};
  coda::Trainer trainer(model->graph, model->loss, coda::initial_weights(*model, 1), *backend,
                        options);
  trainer.bind(coda::constants_of(*model, kSequences, kLength));
  const std::string text = counting_text();
  while (trainer.step_count < options.schedule.total_steps) {
    const coda::StepReport report = trainer.step(batch_of(text, trainer.step_count));
    if (trainer.step_count % 50 == 0)
      std::printf("step %3d  loss %.4f\n", static_cast<int>(trainer.step_count), report.loss);
  }

  // The logits of one sequence; attention is causal, so what stands behind the prompt is not seen.
  coda::CompileRequest request;
  request.outputs = {{"logits", model->logits}};
  coda::CompileOptions compiling;
  compiling.rates = backend->rates();
  compiling.sizes = {{"M", kLength}, {"T", kLength}};
  coda::Session session(coda::compile(model->graph, request, compiling).plan, *backend,
                        compiling.sizes);
  session.bind_known(trainer.parameters());
  session.bind_known(coda::constants_of(*model, 1, kLength));
  session.allocate();
  std::string line = "41 42 43 ";
  std::printf("%s|", line.c_str());
  for (int i = 0; i < 30; ++i) {
    std::vector<int32_t> ids(line.begin(), line.end());
    ids.resize(kLength);
    session.tensor("ids").set(ids);
    session.forward();
    const std::vector<float> logits = session.tensor("logits").floats();
    const auto last = logits.begin() + (std::ssize(line) - 1) * config.vocab;
    line += static_cast<char>(std::max_element(last, last + config.vocab) - last);
    std::putchar(line.back());
  }
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
