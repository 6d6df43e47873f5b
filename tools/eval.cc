// SPDX-License-Identifier: Apache-2.0
// coda eval: loss and perplexity of a checkpoint on a text or on token ids.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>

#include "coda/backend.h"
#include "coda/checkpoint.h"
#include "coda/error.h"
#include "coda/model_runner.h"
#include "coda/models.h"
#include "coda/run.h"
#include "commands.h"
#include "data_flags.h"
#include "device_flag.h"
#include "flag_values.h"
#include "model_flags.h"

namespace coda::tools {
namespace {

struct EvalFlags {
  std::string folder;
  DataFlags data;
  int64_t sequence = 0;
  int64_t stride = 0;
  int64_t batch = 0;
  int64_t limit = 0;
  double expert_capacity = 0;
  std::string dtype = "fp32";
  DeviceFlags device;
  bool json = false;
};

void print(const EvalFlags& flags, const Evaluation& result, bool is_bytes, double seconds) {
  const bool is_sparse = flags.expert_capacity > 0;
  const double loss = result.loss();
  const double bits = loss / std::numbers::ln2;
  if (flags.json) {
    nlohmann::ordered_json out{{"loss", loss},
                               {"perplexity", std::exp(loss)},
                               {"bits_per_token", bits},
                               {"predicted_tokens", result.predicted},
                               {"sequence", flags.sequence},
                               {"stride", flags.stride},
                               {"seconds", seconds}};
    if (is_sparse) out["expert_choices_without_room"] = result.dropped;
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("loss        {:.6f} nats a token\n", loss);
  fmt::print("perplexity  {:.4f}\n", std::exp(loss));
  fmt::print("bits        {:.4f} a {}\n", bits, is_bytes ? "byte" : "token");
  fmt::print("predicted   {} tokens in {:.1f} s ({:.0f} a second)\n", result.predicted, seconds,
             static_cast<double>(result.predicted) / seconds);
  if (is_sparse) fmt::print("experts     had no room for {} choices\n", result.dropped);
}

// Sequences for about 2048 tokens, reduced so that the last batch is full: a row without tokens
// takes as long as any other.
int64_t batch_of(const EvalFlags& flags, int64_t predicted) {
  const int64_t most = std::max<int64_t>(1, 2048 / flags.sequence);
  const auto times = [](int64_t count, int64_t of) { return (count + of - 1) / of; };
  const int64_t windows = 1 + times(std::max<int64_t>(0, predicted - flags.sequence), flags.stride);
  return times(windows, times(windows, most));
}

void run(EvalFlags flags) {
  const ModelConfig config = load_model_config(flags.folder);
  say_notes(model_notes(flags.folder));
  const int64_t longest = longest_sequence_of(config);
  const TextTokens text_tokens =
      flags.data.is_text()
          ? TextTokens::of_model(find_model_folder(flags.folder), vocabulary_of(config))
          : TextTokens::of_bytes();
  Tokens tokens = flags.data.load(vocabulary_of(config), text_tokens);
  if (flags.limit > 0) tokens = tokens.slice(0, std::min(tokens.size(), flags.limit + 1));
  if (flags.sequence == 0) {
    flags.sequence = std::min({longest, int64_t{1024}, std::max<int64_t>(tokens.size() - 1, 1)});
  }
  if (flags.stride == 0) flags.stride = flags.sequence;
  if (flags.batch == 0) flags.batch = batch_of(flags, tokens.size() - 1);
  if (!flags.json) {
    fmt::print("{}: {}\n", flags.folder, description_of(config));
    fmt::print("{}: {} tokens, sequences of {}, stride {}\n", tokens.source, tokens.size(),
               flags.sequence, flags.stride);
  }
  const auto backend = flags.device.backend();
  LoadedModel model = load_model(flags.folder,
                                 {.task = ModelTask::losses,
                                  .storage = storage_type(flags.dtype),
                                  .batch = flags.batch,
                                  .sequence = flags.sequence,
                                  .expert_capacity = flags.expert_capacity},
                                 *backend);
  const auto start = std::chrono::steady_clock::now();
  const Evaluation result = evaluate(*model.runner, tokens, flags.stride);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  require(std::isfinite(result.total_loss),
          flags.folder + ": the loss is not finite: the weights are damaged, or too large for " +
              flags.dtype);
  print(flags, result, flags.data.is_text() && text_tokens.is_bytes(), seconds.count());
}

}  // namespace

void add_eval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App& command =
      *app.add_subcommand("eval", "Loss and perplexity of a checkpoint on a text or on token ids");
  command
      .add_option("checkpoint", flags->folder,
                  "A Hugging Face folder: config.json, "
                  "model.safetensors (or shards with an index)")
      ->required();
  flags->data.add_to(command);
  const auto at_least_1 = CLI::Range(int64_t{1}, int64_t{INT32_MAX});
  command
      .add_option("--sequence", flags->sequence,
                  "Tokens of a sequence [the model's longest, at most 1024]")
      ->check(at_least_1);
  command
      .add_option("--stride", flags->stride,
                  "Tokens between the starts of two sequences; smaller than --sequence gives "
                  "each token more context, and takes longer [--sequence]")
      ->check(at_least_1);
  command.add_option("--batch", flags->batch, "Sequences at once [at most 2048 tokens' worth]")
      ->check(at_least_1);
  command.add_option("--limit", flags->limit, "Predict only this many tokens")->check(at_least_1);
  add_expert_capacity_flag(command, flags->expert_capacity);
  command.add_option("--dtype", flags->dtype, "Storage of weights and activations: fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  flags->device.add_to(command);
  command.add_flag("--json", flags->json, "Print one JSON object");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
