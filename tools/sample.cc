// SPDX-License-Identifier: Apache-2.0
// coda sample: lets a checkpoint write.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "coda/backend.h"
#include "coda/checkpoint.h"
#include "coda/error.h"
#include "coda/model_runner.h"
#include "commands.h"
#include "device_flag.h"
#include "flag_values.h"

namespace coda::tools {
namespace {

struct SampleFlags {
  std::string folder;
  std::string prompt;
  std::vector<int32_t> prompt_ids;
  int64_t count = 400;
  int64_t context = 0;
  std::string dtype = "fp32";
  DeviceFlags device;
  SamplingOptions options;
};

void run(SampleFlags flags) {
  const ModelConfig config = load_model_config(flags.folder);
  const bool is_bytes = vocabulary_of(config) == 256;
  const int64_t longest = longest_sequence_of(config);
  require(is_bytes || flags.prompt.empty(),
          flags.folder +
              ": the model's tokens are no bytes: give --prompt-ids, made with its "
              "tokenizer, instead of --prompt");
  require(is_bytes || !flags.prompt_ids.empty(),
          flags.folder + ": the model's tokens are no bytes: give --prompt-ids to start from");
  std::vector<int32_t> prompt = flags.prompt_ids;
  if (prompt.empty()) {
    if (flags.prompt.empty()) flags.prompt = "\n";
    for (unsigned char byte : flags.prompt) prompt.push_back(byte);
  }
  if (flags.context == 0) flags.context = std::min<int64_t>(longest, 512);
  const auto backend = flags.device.backend();
  LoadedModel model = load_model(
      flags.folder,
      {.task = ModelTask::logits, .storage = storage_type(flags.dtype), .sequence = flags.context},
      *backend);
  std::fwrite(flags.prompt.data(), 1, flags.prompt.size(), stdout);
  generate(*model.runner, prompt, flags.count, flags.options, [&](int32_t id) {
    if (is_bytes) {
      std::fputc(id, stdout);
    } else {
      fmt::print("{} ", id);
    }
    std::fflush(stdout);
    return std::ferror(stdout) == 0;
  });
  std::fputc('\n', stdout);
}

}  // namespace

void add_sample(CLI::App& app) {
  auto flags = std::make_shared<SampleFlags>();
  CLI::App& command = *app.add_subcommand("sample", "Text that a checkpoint writes");
  command.add_option("checkpoint", flags->folder, "A Hugging Face folder")->required();
  auto* prompt = command.add_option("--prompt", flags->prompt, "What to go on from [a new line]");
  command.add_option("--prompt-ids", flags->prompt_ids, "The same as token ids: 12,7,99")
      ->delimiter(',')
      ->excludes(prompt);
  const auto at_least_1 = CLI::Range(int64_t{1}, int64_t{INT32_MAX});
  command.add_option("--tokens", flags->count, "Tokens to write")
      ->check(at_least_1)
      ->capture_default_str();
  command
      .add_option("--context", flags->context,
                  "Tokens that the model sees [its longest sequence, at most 512]")
      ->check(at_least_1);
  command.add_option("--temperature", flags->options.temperature, "0: always the likeliest token")
      ->check(number_within(0, 100))
      ->capture_default_str();
  command.add_option("--top-k", flags->options.top_k, "Only among the k likeliest; 0: among all")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}))
      ->capture_default_str();
  command.add_option("--seed", flags->options.seed, "Another seed, another text")
      ->check(whole_number())
      ->capture_default_str();
  command.add_option("--dtype", flags->dtype, "Storage of weights and activations: fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  flags->device.add_to(command);
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
