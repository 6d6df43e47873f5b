// SPDX-License-Identifier: Apache-2.0
// coda explain: prints the plan of a model, a graph, or programs lifted to a graph, and compares
// fused with unfused.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <optional>

#include "coda/backend.h"
#include "coda/eight_bits.h"
#include "coda/error.h"
#include "coda/kernels.h"
#include "coda/model_runner.h"
#include "coda/models.h"
#include "coda/recompute.h"
#include "coda/step_memory.h"
#include "commands.h"
#include "device_flag.h"
#include "explained_plan.h"
#include "flag_values.h"
#include "model_flags.h"
#include "state_flags.h"

namespace coda::tools {
namespace {

struct ExplainFlags {
  std::vector<std::string> programs;
  std::vector<std::string> sizes;
  ModelFlags model;
  std::string task = "train";
  int64_t batch = 1;
  int64_t accumulate = 1;
  int64_t sequence = 2048;
  int64_t loss_rows = kAutomaticLossRows;
  double expert_capacity = 0;
  std::string dtype;  // empty: fp32, or what load_programs finds in files
  std::string fp8_except;
  std::string objective = "memory";
  std::string recompute = "norms";
  bool layers_on_host = false;
  StateFlags states;
  CardFlag gpu;  // none: a CPU
  std::string target;

  Rates rates() const { return gpu.name.empty() ? cpu_rates() : gpu.rates(); }
  bool measure = false;
  bool json = false;
  bool brief = false;
};

ExplainedGraph model_graph(const ExplainFlags& flags, const ModelConfig& config) {
  const std::map<std::string, ModelTask> tasks{
      {"train", ModelTask::gradients}, {"eval", ModelTask::losses}, {"sample", ModelTask::logits}};
  ModelTaskGraph task =
      make_task(config,
                {.task = tasks.at(flags.task),
                 .storage = flags.dtype.empty() ? DType::f32 : storage_type(flags.dtype),
                 .batch = flags.batch,
                 .sequence = flags.sequence,
                 .accumulate = flags.accumulate > 1,
                 .expert_capacity = flags.expert_capacity},
                cpu_rates());
  return {std::move(task.model), nullptr, std::move(task.request), std::move(task.options)};
}

ExplainedPlan explain(const ExplainFlags& flags, const ModelConfig* config, bool fuse) {
  ExplainedGraph source =
      config != nullptr
          ? model_graph(flags, *config)
          : load_programs(flags.programs, parse_sizes(flags.sizes), flags.task == "train");
  if (!flags.dtype.empty()) source.options.storage = storage_type(flags.dtype);
  source.options.eight_bits = eight_bits_of(flags.dtype);
  source.options.eight_bits_except = names_in(flags.fp8_except);
  source.options.rates = flags.rates();
  const Recompute recompute = recompute_of(flags.recompute);
  source.options.objective = flags.objective == "speed" ? Objective::speed : recompute.objective;
  source.options.recomputed_layers = recompute.recomputed_layers;
  source.options.layers_on_host = flags.layers_on_host && !flags.gpu.name.empty();
  source.options.fuse = fuse;
  source.options.loss_rows = flags.task == "train" ? flags.loss_rows : 0;
  ExplainedPlan plan = explain(std::move(source));
  if (!flags.measure) return plan;
  const std::vector<double> seconds = measure_plan(plan.compiled.plan, plan.source.options.sizes);
  for (size_t i = 0; i < seconds.size(); ++i) plan.steps[i].measured = seconds[i];
  return plan;
}

// The memory of a model's training step on the target. A trainer keeps the weights' 8-bit copies.
std::optional<StepMemory> memory_of(const ExplainFlags& flags, const ExplainedPlan& explained) {
  const ExplainedGraph& source = explained.source;
  if (source.model == nullptr || flags.task != "train") return std::nullopt;
  CompileOptions options = source.options;
  options.copies_are_given = true;
  const Compiled compiled = options.eight_bits == EightBits::none
                                ? explained.compiled
                                : compile(source.get(), source.request, options);
  const bool is_on_gpu = !flags.gpu.name.empty();
  const int64_t workspace =
      is_on_gpu ? gpu_workspace_bytes(compiled.plan, options.sizes, flags.gpu.kernels(flags.target))
                : make_backend("cpu")->workspace_bytes(compiled.plan, options.sizes);
  StepPlace place{.is_on_host = !is_on_gpu, .workspace = workspace};
  flags.states.set(place.optimizer, options.storage);
  return step_memory(compiled, options.sizes, place);
}

void run(const ExplainFlags& flags) {
  Explanation what;
  std::optional<ModelConfig> config;
  if (flags.programs.empty()) {
    require(flags.sizes.empty(), "--sizes are those of program files: name some, or leave it out");
    config = flags.model.build(flags.sequence);
    what.title = description_of(*config);
    what.how =
        fmt::format("{}: {} sequences of {} tokens, ", flags.task, flags.batch, flags.sequence);
  } else {
    for (const std::string& file : flags.programs)
      what.title += (what.title.empty() ? "" : ", ") + file;
    what.how = flags.task == "train" ? "with gradients, " : "";
  }
  const ModelConfig* model = config ? &*config : nullptr;
  const ExplainedPlan fused = explain(flags, model, true);
  const DType storage = fused.source.options.storage;
  const std::string dtype = !flags.dtype.empty()    ? flags.dtype
                            : storage == DType::f32 ? "fp32"
                                                    : std::string(name_of(storage));
  const GpuCard* card = flags.gpu.card();
  what.prediction = card == nullptr ? "" : prediction_note(*card);
  what.how += fmt::format(
      "{}, for {}, least {} first", dtype, card == nullptr ? "a CPU" : card->name,
      flags.objective == "speed" || flags.recompute == "none" ? "time" : "saved memory");
  if (const int layers = recompute_of(flags.recompute).recomputed_layers; layers != 0)
    what.how += layers == kAllLayers ? ", layers recomputed"
                                     : ", " + std::to_string(layers) + " layers recomputed";
  const ExplainedPlan unfused = explain(flags, model, false);
  what.fused = &fused;
  what.unfused = &unfused;
  what.memory = memory_of(flags, fused);
  if (flags.json) {
    print_json(what);
  } else {
    print_text(what, flags.brief);
  }
}

}  // namespace

void add_explain(CLI::App& app) {
  auto flags = std::make_shared<ExplainFlags>();
  flags->model.sizes.layers = 1;
  CLI::App& command =
      *app.add_subcommand("explain",
                          "The plan of a model, or of programs: epilogues, bytes, flops and time, "
                          "fused and unfused, and the reason for the place of each operation");
  command
      .add_option("programs", flags->programs,
                  "Files of programs (.coda), in the order in which they run, or the file of a "
                  "graph; none: a model")
      ->type_name("FILE");
  command.add_option("--sizes", flags->sizes, "Sizes of the programs' symbols: M=2048,D=576")
      ->delimiter(',')
      ->type_name("LIST");
  flags->model.add_to(command);
  const auto at_least_1 = CLI::Range(int64_t{1}, int64_t{INT32_MAX});
  command.add_option("--task", flags->task, "What is planned: train, eval or sample")
      ->check(CLI::IsMember({"train", "eval", "sample"}))
      ->capture_default_str();
  command.add_option("--batch", flags->batch, "Sequences")
      ->check(at_least_1)
      ->capture_default_str();
  command
      .add_option("--accumulate", flags->accumulate,
                  "Microbatches per training step; with more than one, gradients do not share "
                  "memory with activations")
      ->check(at_least_1)
      ->capture_default_str();
  command.add_option("--sequence", flags->sequence, "Tokens of each")
      ->check(at_least_1)
      ->capture_default_str();
  command
      .add_option("--loss-rows", flags->loss_rows,
                  "Tokens whose logits are in memory at once, a multiple of 64; 0: all [all up to "
                  "256 MiB of logits, then 128 MiB or an eighth, whichever is more]")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}));
  command
      .add_option("--dtype", flags->dtype,
                  "Storage of weights and activations: fp32 or bf16; fp8: bf16 with GEMMs in 8 "
                  "bits, except the gradient of the head's weight; fp8-kept: as fp8, and values "
                  "that only the backward's epilogues read are saved in 8 bits [fp32; of files the "
                  "16 bits that their products read]")
      ->check(type_or_recipe({"fp32", "bf16"}));
  add_fp8_except_flag(command, flags->fp8_except);
  command
      .add_option("--objective", flags->objective,
                  "What to minimise: memory (saved for the backward) or speed (time)")
      ->check(CLI::IsMember({"memory", "speed"}))
      ->capture_default_str();
  add_expert_capacity_flag(command, flags->expert_capacity);
  add_recompute_flag(command, flags->recompute);
  add_layers_on_host_flag(command, flags->layers_on_host)->group("Memory of a training step");
  flags->states.add_to(command, "Memory of a training step");
  flags->gpu.add_to(command, "The card that will run it, by name: rtx4090 (docs/gpus.md) [a CPU]");
  add_target(command, flags->target);
  command.add_flag("--measure", flags->measure,
                   "Run it here, on the CPU, and show each step's time");
  command.add_flag("--brief", flags->brief, "Show the table of steps without the programs");
  command.add_flag("--json", flags->json, "Everything as one JSON object");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
