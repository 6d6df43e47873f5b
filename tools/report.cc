// SPDX-License-Identifier: Apache-2.0
// Runs xz as a subprocess, and times two sessions in turns.
#include "report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "coda/compile.h"
#include "coda/model_runner.h"

namespace coda::tools {
namespace {

// The size of the texts as one file after `xz -9`; none if there is no xz.
std::optional<int64_t> xz_bytes(std::span<const Tokens* const> texts) {
  const auto close_file = [](FILE* file) { std::fclose(file); };
  const std::unique_ptr<FILE, decltype(close_file)> file(std::tmpfile(), close_file);
  if (file == nullptr) return std::nullopt;
  for (const Tokens* text : texts) {
    std::fwrite(text->bytes.data(), 1, text->bytes.size(), file.get());
  }
  if (std::fflush(file.get()) != 0) return std::nullopt;
  const std::string command =
      fmt::format("xz -9 -c < /proc/{}/fd/{} 2> /dev/null | wc -c", getpid(), fileno(file.get()));
  const auto close_pipe = [](FILE* pipe) { pclose(pipe); };
  const std::unique_ptr<FILE, decltype(close_pipe)> pipe(popen(command.c_str(), "r"), close_pipe);
  long long bytes = 0;
  if (pipe == nullptr || std::fscanf(pipe.get(), "%lld", &bytes) != 1 || bytes == 0) {
    return std::nullopt;
  }
  return bytes;
}

struct MeasuredPlan {
  std::vector<double> seconds;
  double bytes = 0;
  size_t programs = 0;
  int64_t memory = 0;

  double median() {
    std::nth_element(seconds.begin(), seconds.begin() + std::ssize(seconds) / 2, seconds.end());
    return seconds[seconds.size() / 2];
  }
};

double bytes_moved(const Session& session) {
  double bytes = 0;
  for (const auto* steps : {&session.plan().forward, &session.plan().backward}) {
    for (const PlanStep& step : *steps) {
      bytes += cost_of(step, session.plan(), session.sizes(), cpu_rates()).bytes;
    }
  }
  return bytes;
}

}  // namespace

void print_compression(const TokenSplit& data, double bits) {
  const std::array<const Tokens*, 1> alone{&data.held_out};
  const std::array<const Tokens*, 1> training{&data.train};
  const std::array<const Tokens*, 2> both{&data.train, &data.held_out};
  const auto own = xz_bytes(alone);
  const auto of_training = xz_bytes(training);
  const auto of_both = xz_bytes(both);
  fmt::print("held-out text, {} bytes, in bits a byte:\n", data.held_out.size());
  fmt::print("  this model                                 {:.3f}\n", bits);
  if (!own || !of_training || !of_both) {
    fmt::print("  xz -9: not found; install xz-utils to compare\n");
    return;
  }
  const double per_byte = 8 / static_cast<double>(data.held_out.size());
  fmt::print("  xz -9 of it                                {:.3f}\n",
             static_cast<double>(*own) * per_byte);
  fmt::print("  xz -9 of it behind the training text       {:.3f}\n",
             static_cast<double>(*of_both - *of_training) * per_byte);
}

void print_fusion(const ModelTrainSettings& settings, const TensorMap& weights,
                  const Tokens& tokens, Backend& backend) {
  constexpr int kRounds = 9;
  std::array<MeasuredPlan, 2> measured;  // fused, unfused
  std::array<std::unique_ptr<ModelRunner>, 2> runners;
  for (size_t i = 0; i < 2; ++i) {
    runners[i] = std::make_unique<ModelRunner>(
        settings.model,
        ModelRunnerOptions{.task = ModelTask::gradients,
                           .storage = settings.storage,
                           .batch = settings.batch,
                           .sequence = settings.sequence,
                           .fuse = i == 0,
                           .loss_rows = settings.loss_rows,
                           .expert_capacity = settings.expert_capacity},
        backend);
    runners[i]->bind(weights);
    const Session& session = runners[i]->session();
    measured[i].bytes = bytes_moved(session);
    measured[i].programs = session.plan().forward.size() + session.plan().backward.size();
    measured[i].memory = session.arena_bytes() + session.saved_bytes();
  }
  std::vector<int32_t> ids(static_cast<size_t>(settings.batch * settings.sequence));
  std::vector<int32_t> targets(ids.size());
  sample_batch(tokens, settings.seed, 0, 0, settings.sequence, ids, targets);
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t i = 0; i < 2; ++i) {
      const auto start = std::chrono::steady_clock::now();
      runners[i]->forward(ids, targets);
      runners[i]->backward(1);
      backend.synchronize();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      if (round > 0) measured[i].seconds.push_back(seconds.count());
    }
  }
  fmt::print("forward and backward of a batch, medians of {} in turns:\n", kRounds);
  fmt::print("             steps       time   bytes moved    its memory\n");
  for (size_t i = 0; i < 2; ++i) {
    MeasuredPlan& m = measured[i];
    fmt::print("  {:8} {:7} {:7.1f} ms {:10.1f} MB {:10.1f} MB\n", i == 0 ? "fused" : "unfused",
               m.programs, m.median() * 1e3, m.bytes / 1e6, static_cast<double>(m.memory) / 1e6);
  }
  fmt::print("  the unfused plan takes {:.2f} times as long and moves {:.2f} times the bytes\n",
             measured[1].median() / measured[0].median(), measured[1].bytes / measured[0].bytes);
}

}  // namespace coda::tools
