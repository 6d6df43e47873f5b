// SPDX-License-Identifier: Apache-2.0
// coda train: the flags of a training run. Checkpoints store them, so that --resume needs only
// --out and --data.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "coda/checkpoint.h"
#include "coda/communicator.h"
#include "coda/device.h"
#include "coda/eight_bits.h"
#include "coda/error.h"
#include "coda/messages.h"
#include "coda/models.h"
#include "coda/recompute.h"
#include "coda/run.h"
#include "coda/step_memory.h"
#include "commands.h"
#include "compared_flags.h"
#include "data_flags.h"
#include "device_flag.h"
#include "flag_values.h"
#include "launch.h"
#include "model_flags.h"
#include "state_flags.h"
#include "train_run.h"

namespace coda::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFingerprint = "fingerprint";  // of the data, among a state's options

struct TrainFlags {
  DataFlags data;
  ModelFlags model;
  std::string out = "out/run";
  std::string init;
  std::string tokenizer;
  bool resume = false;
  bool overwrite = false;
  bool report = false;
  std::string profile;
  DeviceFlags device;
  int gpus = 1;
  int processes = 0;  // on CPUs; 0: a single process
  double held_out = 0.05;
  int64_t steps = 1800;
  int64_t batch = 4;
  int64_t accumulate = 1;
  int64_t sequence = 256;
  int64_t loss_rows = kAutomaticLossRows;
  double expert_capacity = 0;
  std::string recompute = "norms";
  bool layers_on_host = false;
  double memory = 0;  // GB
  std::string dtype = "fp32";
  std::string fp8_except;
  uint64_t seed = 1;
  double rate = -1;  // default: 0.004, or 5e-5 from a checkpoint
  double final_rate = 0.1;
  int64_t warmup = -1;  // default: a tenth of the steps, at most 100
  std::string optimizer = "adamw";
  // Settings of the optimizer; without a value: its default.
  std::map<std::string, std::optional<double>> settings;
  StateFlags states;
  double clip = 1;
  int64_t save_every = 200;
  int64_t eval_every = 0;
  int64_t sample_tokens = 400;
  std::string prompt = "\n";
};

int64_t warmup_of(const TrainFlags& f) {
  return f.warmup >= 0 ? f.warmup : std::min<int64_t>(100, f.steps / 10);
}

// Lower for trained weights than for random ones, as in transformers: a large step would destroy
// them.
double rate_of(const TrainFlags& f) {
  if (f.rate >= 0) return f.rate;
  return (f.init.empty() ? 4e-3 : 5e-5) * optimizer_kind(f.optimizer).rate;
}

// The default of beta2 for AdamW, which differs from the library's: runs are short and data is
// small.
constexpr double kBeta2 = 0.98;

// All settings of the optimizer. Throws Error for a setting that the optimizer does not have.
std::map<std::string, double> optimizer_settings(const TrainFlags& f) {
  std::map<std::string, double> settings;
  for (const OptimizerSetting& setting : optimizer_kind(f.optimizer).settings)
    settings[setting.name] = setting.value;
  if (f.optimizer == "adamw") settings["beta2"] = kBeta2;
  for (const auto& [name, value] : f.settings) {
    require(!value || settings.contains(name), "--" + name + " is no setting of " + f.optimizer +
                                                   " (leave it out, or give another "
                                                   "--optimizer)");
    if (value) settings[name] = *value;
  }
  return settings;
}

// For example "Weight decay of matrices [adamw 0.1, sgd 0.001]; ... [lion 0.4]": the help text of
// each optimizer for the setting, with the defaults.
std::string setting_help(const std::string& name) {
  std::vector<std::pair<std::string, std::string>> defaults;  // by help
  for (const OptimizerKind& kind : optimizer_kinds()) {
    for (const OptimizerSetting& setting : kind.settings) {
      if (setting.name != name) continue;
      auto same = std::ranges::find(defaults, setting.help, &decltype(defaults)::value_type::first);
      if (same == defaults.end()) same = defaults.insert(same, {setting.help, ""});
      const bool is_ours = kind.name == "adamw" && name == "beta2";
      same->second += fmt::format("{}{} {}", same->second.empty() ? "" : ", ", kind.name,
                                  is_ours ? kBeta2 : setting.value);
    }
  }
  std::string text;
  for (const auto& [help, of] : defaults)
    text += fmt::format("{}{} [{}]", text.empty() ? "" : "; ", help, of);
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string optimizer_help() {
  std::string help;
  for (const OptimizerKind& kind : optimizer_kinds())
    help += (help.empty() ? "" : "; ") + kind.name + " is " + kind.summary;
  return help;
}

void add_optimizer_flags(CLI::App& command, TrainFlags& f) {
  std::vector<std::string> names;
  for (const OptimizerKind& kind : optimizer_kinds()) names.push_back(kind.name);
  command.add_option("--optimizer", f.optimizer, optimizer_help())
      ->check(CLI::IsMember(names))
      ->capture_default_str()
      ->group("Training");
  std::set<std::string> added;
  for (const OptimizerKind& kind : optimizer_kinds()) {
    for (const OptimizerSetting& setting : kind.settings) {
      if (!added.insert(setting.name).second) continue;
      command.add_option("--" + setting.name, f.settings[setting.name], setting_help(setting.name))
          ->check(setting.is_share ? number_within(0, 1) : number_within(0, 1e6))
          ->group("Training");
    }
  }
  f.states.add_to(command, "Training");
}

int64_t eval_every_of(const TrainFlags& f) {
  return f.eval_every > 0 ? f.eval_every : std::max<int64_t>(1, f.steps / 10);
}

// Flags that affect only this start, not the run itself.
bool is_of_this_start(const std::string& name) {
  return name == "out" || name == "resume" || name == "overwrite" || name == "report" ||
         name == "profile" || name == "device" || name == "gpus" || name == "processes" ||
         name == "attention" || name == "memory" || name == "moments-on-host" ||
         name == "layers-on-host" || name == "help" || name == "save-every" || name == "sample" ||
         name == "prompt";
}

void add_run_flags(CLI::App& command, TrainFlags& f) {
  command.add_option("--out", f.out, "The run's folder, for checkpoints and the loss curve")
      ->type_name("FOLDER")
      ->capture_default_str();
  command.add_flag("--resume", f.resume,
                   "Continue from the newest checkpoint in --out, with the settings of the run's "
                   "start; --data must be given again. The final weights are bitwise those of an "
                   "uninterrupted run, unless --batch and --accumulate divide a step differently "
                   "or --steps changes the length of the run");
  command.add_flag("--overwrite", f.overwrite, "Start a new run although --out has one");
  command.add_option("--save-every", f.save_every, "Steps from one checkpoint to the next")
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}))
      ->capture_default_str();
  command.add_option("--sample", f.sample_tokens, "Tokens of text to generate at the end; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}))
      ->capture_default_str();
  command.add_option("--prompt", f.prompt, "The prompt of this text [a new line]");
  f.device.add_to(command);
  command
      .add_option("--memory", f.memory,
                  "Memory that a step may take, in GB (10^9 bytes) [what is free]")
      ->check(number_within(1e-3, 1e6));
  command
      .add_option("--gpus", f.gpus,
                  "GPUs of this machine; each has one process and a share of --batch. torchrun, "
                  "srun and mpirun start the processes themselves")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      .add_option("--processes", f.processes,
                  "Processes on CPUs of this machine, each with a share of --batch [this one]")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--profile", f.profile,
                  "Write a timeline of the fifth step after the start, for chrome://tracing or "
                  "ui.perfetto.dev")
      ->type_name("FILE");
  command.add_flag("--report", f.report,
                   "At the end compare with xz -9 on the held-out text, and with the unfused plan");
}

void add_training_flags(CLI::App& command, TrainFlags& f) {
  const auto at_least_1 = CLI::Range(int64_t{1}, int64_t{INT32_MAX});
  const auto not_negative = number_within(0, 1e6);
  auto option = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->capture_default_str()->group("Training");
  };
  option("--steps", f.steps, "Steps, from the first to the last")->check(at_least_1);
  option("--batch", f.batch, "Sequences per microbatch")->check(at_least_1);
  option("--accumulate", f.accumulate, "Microbatches per step")->check(at_least_1);
  option("--sequence", f.sequence, "Tokens of a sequence")->check(at_least_1);
  command
      .add_option("--loss-rows", f.loss_rows,
                  "Tokens whose logits are in memory at once, a multiple of 64; 0: all [all up to "
                  "256 MiB of logits, then 128 MiB or an eighth, whichever is more]")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}))
      ->group("Training");
  add_expert_capacity_flag(command, f.expert_capacity)->group("Training");
  add_recompute_flag(command, f.recompute)->group("Training");
  add_layers_on_host_flag(command, f.layers_on_host)->group("Training");
  option("--dtype", f.dtype,
         "fp32; bf16 with fp32 master weights and gradients; fp8: bf16 with GEMMs in 8 bits, "
         "except the gradient of the head's weight; fp8-kept: as fp8, and values that only the "
         "backward's epilogues read are saved in 8 bits")
      ->check(type_or_recipe({"fp32", "bf16"}));
  add_fp8_except_flag(command, f.fp8_except)->group("Training");
  option("--seed", f.seed, "Of initial weights and of the order of the data")
      ->check(whole_number());
  add_optimizer_flags(command, f);
  std::string rates = "Peak learning rate [0.004, with --init 5e-5";
  for (const OptimizerKind& kind : optimizer_kinds())
    if (kind.rate != 1) rates += fmt::format("; {}: {} times as much", kind.name, kind.rate);
  command.add_option("--lr", f.rate, rates + "]")->check(not_negative)->group("Training");
  option("--final-lr", f.final_rate, "Share of --lr at the last step")->check(number_within(0, 1));
  command
      .add_option("--warmup", f.warmup,
                  "Steps until the peak; then the rate falls by half a cosine [a tenth of all, at "
                  "most 100]")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}))
      ->group("Training");
  option("--clip", f.clip, "Largest norm of the gradients; 0: any")->check(not_negative);
  option("--held-out", f.held_out, "Share of the data, at its end, that is not used for training")
      ->check(number_within(0, 0.9));
  command
      .add_option("--eval-every", f.eval_every,
                  "Steps from one held-out loss to the next [a tenth of all]")
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}))
      ->group("Training");
  command
      .add_option("--tokenizer", f.tokenizer,
                  "A tokenizer.json, or a folder with one, for the texts; checkpoints contain a "
                  "copy [that of --init; else a token is a byte]")
      ->type_name("PATH")
      ->group("Data");
  command
      .add_option("--init", f.init, "Start from the weights of this checkpoint, not from random")
      ->type_name("FOLDER")
      ->group("Model");
}

// The flags that define the run, as given.
std::map<std::string, std::string> given_options(const CLI::App& command) {
  std::map<std::string, std::string> options;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_single_name();
    if (option->count() == 0 || is_of_this_start(name)) continue;
    std::string value = option->results().back();
    if ((name == "data" || name == "ids") && !value.empty())
      value = fs::absolute(value).lexically_normal().string();
    options[name] = value;
  }
  return options;
}

// All training flags with their values, because another version may have other defaults, and a
// missing flag must be noticed. Flags that depend on others have their final values.
std::map<std::string, std::string> all_settings(const CLI::App& command, const TrainFlags& flags,
                                                std::map<std::string, std::string> given) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group() == "Training" && !option->get_default_str().empty())
      given.emplace(option->get_single_name(), option->get_default_str());
  }
  for (const auto& [name, value] : optimizer_settings(flags))
    given.emplace(name, fmt::format("{}", value));
  given.emplace("lr", fmt::format("{}", rate_of(flags)));
  given.emplace("warmup", std::to_string(warmup_of(flags)));
  given.emplace("eval-every", std::to_string(eval_every_of(flags)));
  return given;
}

// Parses the stored command line of the run.
void parse_options(const std::map<std::string, std::string>& options, TrainFlags& flags) {
  CLI::App app;
  flags.data.add_to(app);
  flags.model.add_to(app);
  add_training_flags(app, flags);
  read_decimal_numbers(app);
  std::vector<std::string> arguments;
  for (const auto& [name, value] : options) arguments.push_back("--" + name + "=" + value);
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    throw Error(std::string("the checkpoint's options: ") + error.what() +
                " (it was written by another version)");
  }
}

// A path quoted as one word for a shell.
std::string shell_word(const std::string& path) {
  std::string result = "'";
  for (const char c : path) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// Reads the newest checkpoint's state into the flags. A state may come from somebody else, so files
// are read only if the user names them now: --data (or --ids) must be given again. The checkpoint
// contains the model, so --init and --config are not needed.
void resume(const CLI::App& command, const std::map<std::string, std::string>& given,
            TrainFlags& flags, RunPlan& plan) {
  plan.resumed = newest_checkpoint(flags.out);
  const std::string out = printable(flags.out);
  require(plan.resumed.has_value(),
          out + ": there is no checkpoint to resume (start the run without --resume)");
  plan.state = load_run_state(*plan.resumed);
  auto& options = plan.state.options;
  const auto require_state = [&](bool holds, const std::string& problem) {
    require(holds, printable(*plan.resumed / "run_state.json") + ": " + problem +
                       " (the file was changed: remove this checkpoint's folder to continue from "
                       "the one before it)");
  };
  const std::string kind = options.contains("ids") ? "ids" : "data";
  require_state(options.contains(kind), "'options' has no 'data'");
  require_state(options.contains(kFingerprint), "'options' has no 'fingerprint'");
  // Older versions had only these and did not store them.
  options.emplace("optimizer", "adamw");
  options.emplace("master-weights", "fp32");
  flags.optimizer = options.at("optimizer");
  require_state(
      std::ranges::any_of(optimizer_kinds(),
                          [&](const OptimizerKind& kind) { return kind.name == flags.optimizer; }),
      "'optimizer' among 'options' is " + in_quotes(flags.optimizer));
  for (const auto& [name, value] : all_settings(command, flags, {}))
    require_state(options.contains(name), "'options' has no '" + name + "'");
  const std::string text = shell_word(printable(options.at(kind)));
  const auto may_change = [](const std::string& name) {
    return name == "batch" || name == "accumulate" || name == "steps";
  };
  for (const auto& [name, value] : given) {
    require(name == "data" || name == "ids" || may_change(name),
            "--" + name +
                ": a resumed run keeps the settings it was started with; leave it out "
                "(or start another run with --init " +
                out + ")");
  }
  require(given.contains(kind),
          out + ": say again which data the run reads; its own note is only a text that anybody " +
              "may have changed. If you know it, add: --" + kind + " " + text);
  options[kind] = given.at(kind);
  auto kept = options;
  for (const char* name : {kFingerprint, "init", "config", "tokenizer"}) kept.erase(name);
  parse_options(kept, flags);
  // Microbatches may change, for example with fewer GPUs; the data of a step stay the same. The
  // learning rate of further steps is that of a run with this number of steps.
  const int64_t sequences = flags.batch * flags.accumulate;
  for (const auto& [name, value] : given)
    if (may_change(name)) kept[name] = options[name] = value;
  parse_options(kept, flags);
  require(!given.contains("steps") || plan.state.step <= flags.steps,
          fmt::format("--steps {}: the run has done {} steps already; give more", flags.steps,
                      plan.state.step));
  require(
      flags.batch * flags.accumulate == sequences,
      fmt::format("--batch {} and --accumulate {}: a step of this run has {} sequences, and one "
                  "that is resumed keeps that; choose two numbers whose product it is",
                  flags.batch, flags.accumulate, sequences));
  require_state(flags.seed == plan.state.seed, "'seed' is " + std::to_string(plan.state.seed) +
                                                   ", but --seed among 'options' is " +
                                                   std::to_string(flags.seed));
  require_state(plan.state.step <= flags.steps, "'step' is " + std::to_string(plan.state.step) +
                                                    ", but --steps among 'options' is " +
                                                    std::to_string(flags.steps));
}

ModelTrainSettings settings_of(const TrainFlags& f, const ModelConfig& model) {
  ModelTrainSettings s;
  s.model = model;
  s.storage = storage_type(f.dtype);
  s.eight_bits = eight_bits_of(f.dtype);
  s.eight_bits_except = names_in(f.fp8_except);
  s.batch = f.batch;
  s.accumulate = f.accumulate;
  s.sequence = f.sequence;
  s.loss_rows = f.loss_rows;
  s.expert_capacity = f.expert_capacity;
  s.objective = recompute_of(f.recompute).objective;
  s.recomputed_layers = recompute_of(f.recompute).recomputed_layers;
  s.layers_on_host = f.layers_on_host;
  s.memory_limit = static_cast<int64_t>(f.memory * 1e9);
  s.seed = f.seed;
  s.schedule = {.peak = rate_of(f),
                .floor = rate_of(f) * f.final_rate,
                .warmup_steps = warmup_of(f),
                .total_steps = f.steps};
  s.optimizer = make_optimizer(f.optimizer, optimizer_settings(f));
  f.states.set(s.optimizer, s.storage);
  s.optimizer.seed = f.seed;
  s.clip = f.clip;
  return s;
}

// A checkpoint to start from determines the sizes.
void require_no_sizes(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_single_name();
    require(option->count() == 0 || option->get_group() != "Model" || name == "init",
            "--init and --" + name +
                " are both given: the model has the sizes of the checkpoint that it starts from "
                "(leave --" +
                name + " out)");
  }
}

void require_no_run(const TrainFlags& flags) {
  const auto old = newest_checkpoint(flags.out);
  require(
      !old || flags.overwrite,
      printable(flags.out) + ": there is a run already, with " + (old ? printable(*old) : "") +
          " (continue with --resume, start a new run with --overwrite, or choose another --out)");
}

// The shared objects of a run's processes; a single process has a backend and no communicator.
struct Processes {
  std::shared_ptr<Backend> backend;
  std::unique_ptr<Communicator> communicator;

  bool is_first() const { return communicator == nullptr || communicator->rank() == 0; }
  void require_same(const Settings& settings) const {
    if (communicator != nullptr) communicator->require_same(settings);
  }
};

int run(const CLI::App& command, TrainFlags flags, const Processes& processes) {
  processes.require_same(compared_flags(command));
  require(!flags.out.empty(), "--out is empty: name the run's folder");
  std::error_code error;
  RunPlan plan;
  const auto given = given_options(command);
  std::optional<RunLock> lock;
  if (processes.is_first() && fs::is_directory(flags.out, error)) lock.emplace(flags.out);
  if (flags.resume) {
    require(!flags.overwrite, "--resume and --overwrite are both given: give one of them");
    resume(command, given, flags, plan);
  } else {
    if (processes.is_first()) require_no_run(flags);
    plan.state.options = all_settings(command, flags, given);
    plan.state.seed = flags.seed;
  }
  if (!flags.init.empty()) {
    require_no_sizes(command);
    plan.init = find_model_folder(flags.init);
    flags.model.config = plan.init.string();
  }
  const fs::path source = plan.resumed ? *plan.resumed : plan.init;
  if (!flags.tokenizer.empty()) {
    require(source.empty(),
            "--init and --tokenizer are both given: texts are read by the tokenizer in the "
            "checkpoint's folder (leave --tokenizer out)");
    plan.text = TextTokens::of_tokenizer(flags.tokenizer);
    plan.files.others = plan.text.files();
    if (command.get_option("--vocab")->count() == 0)
      flags.model.sizes.vocab = plan.text.vocabulary();
  }
  const ModelConfig model =
      plan.resumed ? load_model_config(*plan.resumed) : flags.model.build(flags.sequence);
  const int64_t vocabulary = vocabulary_of(model);
  if (!source.empty()) {
    require_weights(source, model);  // before anything is allocated by the sizes of a config.json
    if (processes.is_first()) say_notes(model_notes(source));
    plan.files = model_files_of(source);
  }
  if (processes.is_first() && !flags.model.config.empty() && !plan.resumed)
    say_notes(training_notes(flags.model.config));
  if (flags.data.is_text() && !source.empty()) {
    // A run from random weights may read bytes even if its vocabulary is larger.
    plan.text = TextTokens::of_model(source, plan.resumed ? TextTokens::kBytes : vocabulary);
  }
  require(!flags.data.is_text() || !plan.text.is_bytes() || vocabulary >= TextTokens::kBytes,
          fmt::format("a text without a tokenizer has 256 tokens, its bytes, but the model's "
                      "vocabulary has {}: give a --tokenizer, or --ids made with one",
                      vocabulary));
  const Tokens tokens = flags.data.load(vocabulary, plan.text);
  plan.data = split_tokens(tokens, flags.held_out, flags.sequence);
  const std::string now = fingerprint(tokens);
  const auto [found, is_new] = plan.state.options.emplace(kFingerprint, now);
  require(is_new || found->second == now,
          tokens.source +
              ": the data has changed since the run was started; a resumed run needs "
              "the same (put it back, or start another run with --init " +
              printable(flags.out) + ")");
  processes.require_same({{"the checkpoint", plan.resumed ? plan.resumed->filename().string() : ""},
                          {"data whose digest is", now}});
  plan.go_on_with =
      fmt::format("coda train --out {} {} {} --resume{}", shell_word(flags.out),
                  flags.data.is_text() ? "--data" : "--ids",
                  shell_word(flags.data.is_text() ? flags.data.data : flags.data.ids),
                  flags.gpus > 1        ? fmt::format(" --gpus {}", flags.gpus)
                  : flags.processes > 1 ? fmt::format(" --processes {}", flags.processes)
                                        : "");
  plan.is_text = flags.data.is_text();
  plan.settings = settings_of(flags, model);
  plan.backend = processes.backend ? processes.backend : flags.device.backend();
  require(!flags.states.moments_on_host || !plan.backend->is_on_host(),
          "--moments-on-host: this run is on a CPU, whose memory has the moments anyway (leave it "
          "out)");
  require(!flags.layers_on_host || !plan.backend->is_on_host(),
          "--layers-on-host: this run is on a CPU, whose memory has the inputs of layers anyway "
          "(leave it out)");
  plan.communicator = plan.settings.communicator = processes.communicator.get();
  plan.out = flags.out;
  plan.overwrite = flags.overwrite;
  plan.save_every = flags.save_every;
  plan.eval_every = eval_every_of(flags);
  plan.sample_tokens = flags.sample_tokens;
  plan.prompt = flags.prompt.empty() ? "\n" : flags.prompt;
  plan.report = flags.report;
  plan.profile = flags.profile;
  const fs::path folder = fs::path(flags.profile).parent_path();
  require(folder.empty() || fs::is_directory(folder, error),
          "--profile " + printable(flags.profile) + ": there is no folder " + printable(folder) +
              " (make it, or write the file elsewhere)");
  FittingStep fitting = fitting_step(plan.settings, *plan.backend, flags.held_out > 0);
  const StepMemory memory = std::move(fitting.memory);
  plan.step = std::move(fitting.step);
  if (!lock && processes.is_first()) {  // the folder is created once all flags are checked
    lock.emplace(flags.out);
    require_no_run(flags);
  }
  fmt::print("memory of a step: {}\n", memory.text());
  const ModelTrainSettings settings = plan.settings;
  const std::shared_ptr<Backend> backend = plan.backend;
  try {
    return run_training(std::move(plan));
  } catch (const MemoryError& error) {  // others took free memory, or it is uncounted
    throw Error(
        fmt::format("{}; what takes a fifth less: {}", error.what(),
                    what_fits(settings, *backend, flags.held_out > 0, memory.bytes() / 5 * 4)));
  }
}

// Joins the group; only rank 0 prints.
Processes join(const DeviceFlags& device, const ProcessPlace& place) {
  Processes processes;
  try {
    // Slurm may show each process only its own GPU.
    processes.backend = device.backend(count_gpus() == 1 ? 0 : place.local_rank);
    processes.communicator = processes.backend->join(place);
  } catch (const Error& error) {
    if (place.rank == 0) throw;
    throw Error("rank " + std::to_string(place.rank) + ": " + error.what());
  }
  if (!processes.is_first() && std::freopen("/dev/null", "w", stdout) == nullptr)
    throw Error("cannot write to /dev/null");
  return processes;
}

int start(const CLI::App& command, TrainFlags flags) {
  const ProcessPlace place = process_place();
  if (flags.processes > 0) {
    require(flags.gpus == 1, "--gpus and --processes are both given: give one of them");
    require(flags.device.device != "gpu",
            "--processes is for CPUs: for several GPUs give --gpus, without --processes");
    flags.device.device = "cpu";
  }
  if (place.world == 1) {
    if (flags.gpus > 1) return run_on_gpus(flags.gpus);
    if (flags.processes > 1) return run_on_cpus(flags.processes);
    return run(command, std::move(flags), {});
  }
  const Processes processes = join(flags.device, place);
  try {
    return run(command, std::move(flags), processes);
  } catch (const std::exception& error) {
    processes.communicator->fail(error.what());
    throw;
  }
}

}  // namespace

void add_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command =
      app.add_subcommand("train", "Trains a model on a text or on a file of token ids");
  flags->data.add_to(*command);
  flags->model.add_to(*command);
  add_training_flags(*command, *flags);
  add_run_flags(*command, *flags);
  command->callback([flags, command] {
    if (const int status = start(*command, *flags)) throw CLI::RuntimeError(status);
  });
}

}  // namespace coda::tools
