// SPDX-License-Identifier: Apache-2.0
// coda sample: generates text with a checkpoint.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "coda/backend.h"
#include "coda/checkpoint.h"
#include "coda/error.h"
#include "coda/model_runner.h"
#include "coda/run.h"
#include "commands.h"
#include "device_flag.h"
#include "flag_values.h"
#include "model_flags.h"
#include "text_tokens.h"

namespace coda::tools {
namespace {

struct SampleFlags {
  std::string folder;
  std::string prompt;
  std::vector<int32_t> prompt_ids;
  int64_t count = 400;
  int64_t context = 0;
  bool prints_ids = false;
  bool ignores_end = false;
  std::string dtype = "fp32";
  DeviceFlags device;
  SamplingOptions options;
};

void run(SampleFlags flags) {
  const ModelConfig config = load_model_config(flags.folder);
  say_notes(model_notes(flags.folder));
  const int64_t longest = longest_sequence_of(config);
  const bool needs_tokenizer = flags.prompt_ids.empty() || !flags.prints_ids;
  const TextTokens tokens =
      needs_tokenizer ? TextTokens::of_model(find_model_folder(flags.folder), vocabulary_of(config))
                      : TextTokens::of_bytes();
  const std::vector<int32_t> prompt =
      flags.prompt_ids.empty() ? tokens.prompt(flags.prompt) : flags.prompt_ids;
  if (tokens.is_bytes() && flags.prompt_ids.empty() && flags.prompt.empty()) flags.prompt = "\n";
  if (flags.context == 0)
    flags.context = std::min(longest, std::max<int64_t>(512, std::ssize(prompt) + flags.count));
  const auto backend = flags.device.backend();
  const DType storage = storage_type(flags.dtype);
  Weights weights = load_model_weights(flags.folder, storage);
  TextGenerator generator(config, storage, flags.context, tensors_of(weights, *backend), *backend);
  if (!flags.prints_ids) std::fwrite(flags.prompt.data(), 1, flags.prompt.size(), stdout);
  const TextTokens shown = flags.prints_ids ? tokens.as_numbers() : tokens;
  shown.print(prompt, !flags.ignores_end, [&](const auto& on_token) {
    generator.generate(prompt, flags.count, flags.options, on_token);
  });
  std::fputc('\n', stdout);
}

}  // namespace

void add_sample(CLI::App& app) {
  auto flags = std::make_shared<SampleFlags>();
  CLI::App& command = *app.add_subcommand("sample", "Generates text with a checkpoint");
  command.add_option("checkpoint", flags->folder, "A Hugging Face folder")->required();
  auto* prompt =
      command.add_option("--prompt", flags->prompt, "The text to continue [the start of a text]");
  command.add_option("--prompt-ids", flags->prompt_ids, "The same as token ids: 12,7,99")
      ->delimiter(',')
      ->excludes(prompt);
  const auto at_least_1 = CLI::Range(int64_t{1}, int64_t{INT32_MAX});
  command.add_option("--tokens", flags->count, "Tokens to generate")
      ->check(at_least_1)
      ->capture_default_str();
  command.add_flag("--print-ids", flags->prints_ids, "Print token ids instead of text");
  command.add_flag("--no-stop", flags->ignores_end, "Continue after the token that ends a text");
  command
      .add_option("--context", flags->context,
                  "Largest number of tokens that the model sees; a longer text loses its older "
                  "half [all, up to its longest sequence]")
      ->check(at_least_1);
  command.add_option("--temperature", flags->options.temperature, "0: always the likeliest token")
      ->check(number_within(0, 100))
      ->capture_default_str();
  command
      .add_option("--top-k", flags->options.top_k,
                  "Choose among the k likeliest tokens; 0: among all")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}))
      ->capture_default_str();
  command
      .add_option("--top-p", flags->options.top_p,
                  "Of these, only the likeliest that together have this probability")
      ->check(number_within(0, 1))
      ->capture_default_str();
  command.add_option("--seed", flags->options.seed, "Seed of the random choices")
      ->check(whole_number())
      ->capture_default_str();
  command.add_option("--dtype", flags->dtype, "Storage of weights and activations: fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  flags->device.add_to(command);
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
