// SPDX-License-Identifier: Apache-2.0
// A net of one's own, described, trained, saved, loaded and evaluated: it learns which of three
// spirals a point of the plane belongs to.
#include <coda/coda.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <vector>

namespace {

constexpr int64_t kPoints = 256;  // of a batch
constexpr int64_t kHidden = 64;

// Points of a batch, a function of the step.
coda::TensorMap batch_of(int64_t step) {
  std::vector<float> points;
  std::vector<int32_t> spirals;
  for (int64_t i = 0; i < kPoints; ++i) {
    const auto at = static_cast<float>((step * 97 + i * 61) % 1000) / 1000.0F;
    const auto spiral = static_cast<int32_t>(i % 3);
    const float angle = 4.0F * at + 2.1F * static_cast<float>(spiral);
    points.insert(points.end(), {at * std::cos(angle), at * std::sin(angle)});
    spirals.push_back(spiral);
  }
  coda::TensorMap batch = {{"points", coda::Tensor(coda::DType::f32, kPoints, 2)},
                           {"spirals", coda::Tensor(coda::DType::i32, kPoints, 1)}};
  batch.at("points").set(points);
  batch.at("spirals").set(spirals);
  return batch;
}

void run() {
  coda::Graph graph;
  const coda::Value points = graph.input("points", {"M", 2});
  const coda::Value spirals = graph.table("spirals", {"M", 1}, coda::DType::i32);
  const coda::Value w1 = graph.parameter("w1", {kHidden, 2});
  const coda::Value b1 = graph.parameter("b1", {1, kHidden});
  const coda::Value w2 = graph.parameter("w2", {kHidden, kHidden});
  const coda::Value b2 = graph.parameter("b2", {1, kHidden});
  const coda::Value w3 = graph.parameter("w3", {3, kHidden});
  const coda::Value h1 = coda::silu(coda::linear(points, w1) + b1);
  const coda::Value h2 = coda::silu(coda::linear(h1, w2) + b2);
  const coda::Value logits = coda::linear(h2, w3);
  const coda::Value loss = coda::cross_entropy(logits, spirals).mean;

  const auto backend = coda::make_backend("cpu");
  coda::TrainOptions options;
  options.sizes = {{"M", kPoints}};
  options.schedule = {.peak = 2e-2, .floor = 1e-3, .warmup_steps = 20, .total_steps = 300};
  options.optimizer = coda::make_optimizer("adamw", {{"decay", 0.01}});
  coda::Trainer trainer(graph, loss, coda::initial_weights(graph, 1, 0.5), *backend, options);
  while (trainer.step_count < options.schedule.total_steps) {
    const coda::StepReport report = trainer.step(batch_of(trainer.step_count));
    if (trainer.step_count % 100 == 0)
      std::printf("step %d: loss %.4f\n", static_cast<int>(trainer.step_count), report.loss);
  }
  const auto file = std::filesystem::temp_directory_path() / "coda_spirals.safetensors";
  trainer.fetch();
  coda::save_weights(file, trainer.weights);

  // Another plan of the same graph: the logits only.
  coda::Weights weights = coda::initial_weights(graph, 0);
  coda::load_weights(file, weights);
  coda::CompileRequest request;
  request.outputs = {{"logits", logits}};
  coda::CompileOptions compiling;
  compiling.rates = backend->rates();
  compiling.sizes = options.sizes;
  coda::Session session(coda::compile(graph, request, compiling).plan, *backend, options.sizes);
  session.bind_known(coda::tensors_of(weights, *backend));
  const coda::TensorMap batch = batch_of(1000);
  session.bind_known(batch);
  session.allocate();
  session.forward();
  const std::vector<float> scores = session.tensor("logits").floats();
  const std::vector<int32_t> expected = batch.at("spirals").ints();
  int right = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto spiral = static_cast<size_t>(expected[i]);
    bool is_best = true;
    for (size_t k = 0; k < 3; ++k) is_best = is_best && scores[3 * i + k] <= scores[3 * i + spiral];
    right += is_best ? 1 : 0;
  }
  std::printf("%d of %d points of a new batch are told right\n", right, static_cast<int>(kPoints));
  coda::require(right > 200, "the net has not learned");
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_net: %s\n", error.what());
    return 1;
  }
}
