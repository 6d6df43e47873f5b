// SPDX-License-Identifier: Apache-2.0
// coda bench: times a program, or a LLaMA block without attention, and its GEMMs alone for
// comparison; on the GPU if there is one, else on the CPU.
#include "bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/llama_block/block_graph.h"
#include "coda/device.h"
#include "coda/eight_bits.h"
#include "coda/error.h"
#include "coda/plan_cost.h"
#include "commands.h"
#include "device_flag.h"
#include "explained_plan.h"
#include "flag_values.h"
#include "program_file.h"

namespace coda::tools {
namespace {

struct BenchFlags {
  std::string backend;  // empty: the GPU if there is one
  CardFlag gpu;         // predict for this card, measure nothing
  double seconds = 1.0;
  std::vector<std::string> regimes{"sustained", "cool", "interleaved"};
  int rounds = 15;
  double limit = 30;
  bool json = false;

  bool on_gpu() const {
    if (!gpu.name.empty()) {
      require(backend != "cpu", "--gpu predicts for a GPU: leave out --backend cpu");
      return true;
    }
    if (backend == "cpu") return false;
    const std::string why = why_no_gpu();
    require(backend.empty() || why.empty(), "--backend gpu: " + why);
    return why.empty();
  }
  MeasureOptions options() const {
    const auto has = [&](const char* name) {
      return std::find(regimes.begin(), regimes.end(), name) != regimes.end();
    };
    return {.backend = on_gpu() ? "gpu" : "cpu",
            .gpu = {.seconds = has("sustained") ? seconds : 0,
                    .cool_rounds = has("cool") ? rounds : 0,
                    .interleaved_rounds = has("interleaved") ? rounds : 0},
            .cpu = {.rounds = rounds, .most_seconds = limit},
            // Progress for the user: a GPU measurement takes a minute or more.
            .says = [](const std::string& what) { fmt::print(stderr, "coda: {}\n", what); }};
  }
  void add_to(CLI::App& command) {
    command.add_option("--backend", backend, "cpu or gpu [the GPU where there is one]")
        ->check(CLI::IsMember({"cpu", "gpu"}));
    command
        .add_option("--regimes", regimes,
                    "On a GPU: sustained (each alone on a hot chip), cool (bursts after pauses), "
                    "interleaved (bursts in turns)")
        ->delimiter(',')
        ->check(CLI::IsMember({"sustained", "cool", "interleaved"}))
        ->capture_default_str();
    command
        .add_option("--seconds", seconds,
                    "On a GPU: seconds of a sustained run; each candidate has two")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command.add_option("--rounds", rounds, "Rounds of the other regimes, and on a CPU")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
    command
        .add_option("--limit", limit,
                    "On a CPU: no round begins after X seconds, except the first three")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    gpu.add_to(command,
               "Measure nothing: predict the times on this card, by name: rtx4090 (docs/gpus.md)");
    command.add_flag("--json", json, "Print one JSON object");
  }
};

// The predicted times of a plan's steps, and of its products alone at the same rate.
void show_predicted(const GpuCard& card, const std::string& title, const Plan& plan,
                    const DimValues& sizes, bool json) {
  const Rates rates = rates_of(card);
  const std::string note = prediction_note(card);
  StepCost total;
  nlohmann::ordered_json steps = nlohmann::json::array();
  if (!json)
    fmt::print("{}\n{}\n\n{:>12} {:>12} {:>12}  step\n", title, note, "GFLOP", "MB",
               "predicted us");
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase) {
      const StepCost cost = cost_of(step, plan, sizes, rates);
      total.flops += cost.flops;
      total.seconds += cost.seconds;
      steps.push_back({{"name", step.name}, {"predicted_seconds", cost.seconds}});
      if (!json)
        fmt::print("{:12.3f} {:12.2f} {:12.1f}  {}\n", cost.flops / 1e9, cost.bytes / 1e6,
                   cost.seconds * 1e6, step.name);
    }
  }
  const double products = total.flops / rates.flops_per_second;
  if (json) {
    const nlohmann::ordered_json result{{"title", title},
                                        {"prediction", note},
                                        {"gpu", card.name},
                                        {"predicted_seconds", total.seconds},
                                        {"predicted_seconds_of_products", products},
                                        {"steps", steps}};
    fmt::print("{}\n", result.dump(2));
    return;
  }
  fmt::print("\npredicted: {:.1f} us, of which the products alone {:.1f} us\n", total.seconds * 1e6,
             products * 1e6);
}

struct ProgramBenchFlags {
  BenchFlags bench;
  std::string file;
  std::vector<std::string> sizes;
  std::string storage;
  bool compare = true;
  size_t tune = 0;
  bool fast_accumulation = false;
};

struct BlockFlags {
  BenchFlags bench;
  std::optional<int64_t> tokens;
  std::optional<int64_t> mlp;
  std::optional<int64_t> heads;
  std::optional<int64_t> kv_heads;
  int64_t hidden = 2048;
  std::string dtype = "bf16";
  std::string phase = "both";
  std::string objective;  // empty: speed on a GPU, as for a model with --recompute none
  bool steps = false;
};

void show(const Benched& benched, bool json) {
  if (json) {
    print_json(benched);
  } else {
    print_table(benched);
  }
}

void bench_program(const ProgramBenchFlags& flags) {
  const DimValues sizes = parse_sizes(flags.sizes);
  const std::vector<Program> read = read_programs_stored_as({flags.file}, flags.storage);
  require(read.size() == 1,
          flags.file + " has " + std::to_string(read.size()) +
              " programs, but only one can be measured: put it into its own file");
  const Program& program = read.front();
  require_sizes(program, sizes);
  refuse_other_sizes({&program, 1}, sizes);
  if (const GpuCard* card = flags.bench.gpu.card())
    return show_predicted(*card, program.name + text_of(sizes), one_step_plan(program), sizes,
                          flags.bench.json);
  MeasureOptions options = flags.bench.options();
  options.gpu.tuned = flags.tune;
  options.gpu.fast_accumulation = flags.fast_accumulation;
  options.compare = flags.compare;
  show({.measured = measure_program(program, sizes, options),
        .title = program.name + text_of(sizes),
        .about = {{"program", program.name}, {"sizes", sizes}}},
       flags.bench.json);
}

void bench_block(const BlockFlags& flags) {
  const bool on_gpu = flags.bench.on_gpu();
  const DType storage = storage_type(flags.dtype);
  require(!on_gpu || storage == DType::bf16,
          "products on a GPU have operands of 16 bits or 8: leave --dtype out, name a recipe, or "
          "add --backend cpu");
  const int64_t heads = flags.heads.value_or(std::max<int64_t>(1, flags.hidden / 128));
  const bench::BlockSize size{.tokens = flags.tokens.value_or(on_gpu ? 16384 : 1024),
                              .width = flags.hidden,
                              .mlp = flags.mlp.value_or((flags.hidden * 11 / 4 + 63) / 64 * 64),
                              .heads = heads,
                              .kv_heads = flags.kv_heads.value_or(heads)};
  require(size.width % size.heads == 0 && size.head_dim() % 2 == 0,
          fmt::format("--hidden {} does not divide into {} heads of an even size", size.width,
                      size.heads));
  require(size.heads % size.kv_heads == 0,
          fmt::format("--heads {} must be a multiple of --kv-heads {}", size.heads, size.kv_heads));
  const bool backward = flags.phase == "both";
  CompileOptions options;
  options.rates = on_gpu ? flags.bench.gpu.rates() : cpu_rates();
  options.storage = storage;
  options.eight_bits = eight_bits_of(flags.dtype);
  options.copies_are_given = true;  // in training, the optimizer stores them
  options.sizes = {{"M", size.tokens}};
  options.overwrite_saved = true;  // as in training: each forward has one backward
  const bool is_fast = flags.objective.empty() ? on_gpu : flags.objective == "speed";
  options.objective = is_fast ? Objective::speed : Objective::memory;
  require(!flags.steps || on_gpu, "--steps needs a GPU: leave it out on a CPU");
  const auto plan = [&](bool fuse) {
    Graph graph;
    options.fuse = fuse;
    const CompileRequest request = bench::add_block(graph, size, storage, backward);
    return compile(graph, request, options);
  };
  const std::string phase = backward ? "forward + backward" : "forward";
  const std::string title = fmt::format(
      "a LLaMA block without attention, {}, {}: {} tokens, hidden {}, MLP {}, {} heads of {}, {} "
      "of "
      "keys and values",
      phase, flags.dtype, size.tokens, size.width, size.mlp, size.heads, size.head_dim(),
      size.kv_heads);
  const Compiled fused = plan(true);
  if (const GpuCard* card = flags.bench.gpu.card())
    return show_predicted(*card, title, fused.plan, options.sizes, flags.bench.json);
  MeasureOptions measuring = flags.bench.options();
  measuring.steps = flags.steps;
  const Compiled unfused = on_gpu ? Compiled() : plan(false);
  show({.measured = measure_plan(fused, options.sizes, measuring, &unfused),
        .title = title,
        .about = {{"phase", phase},
                  {"dtype", flags.dtype},
                  {"objective", is_fast ? "speed" : "memory"},
                  {"hidden", size.width},
                  {"mlp", size.mlp},
                  {"heads", size.heads},
                  {"kv_heads", size.kv_heads}},
        .tokens = size.tokens},
       flags.bench.json);
}

// All flags except the file, which `coda bench` may omit.
void add_program_flags(CLI::App& command, ProgramBenchFlags& flags) {
  command.add_option("--sizes", flags.sizes, "Sizes of its symbols: M=16384,N=2048,K=2048")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command
      .add_option("--storage", flags.storage,
                  "bf16 or f16: matrices without a type in the file are stored so, because GEMMs "
                  "on a GPU need 16 bits [as written]")
      ->check(CLI::IsMember({"bf16", "f16"}));
  command
      .add_option("--tune", flags.tune,
                  "On a GPU: also time N other tile configurations, and show the fastest")
      ->capture_default_str();
  command.add_flag("--fast-accumulation", flags.fast_accumulation,
                   "On a GPU: the tensor cores alone sum 8-bit GEMMs, ours and cuBLAS's; sums then "
                   "keep about 14 bits");
  command.add_flag("--compare,!--alone", flags.compare,
                   "Also time its operations one by one and a copy of as many bytes [default]; "
                   "--alone omits both");
  flags.bench.add_to(command);
}

void add_program(CLI::App& bench) {
  auto flags = std::make_shared<ProgramBenchFlags>();
  CLI::App& command = *bench.add_subcommand("program", "The same as coda bench FILE");
  command.add_option("file", flags->file, "The program (.coda)")->required()->type_name("FILE");
  add_program_flags(command, *flags);
  command.callback([flags] { bench_program(*flags); });
}

void add_block(CLI::App& bench) {
  auto flags = std::make_shared<BlockFlags>();
  CLI::App& command = *bench.add_subcommand("block",
                                            "A LLaMA block without attention, compared with its "
                                            "GEMMs alone, and on a CPU with its unfused plan");
  const auto at_least_1 = CLI::Range(int64_t{1}, int64_t{INT32_MAX});
  command.add_option("--tokens", flags->tokens, "Rows [16384 on a GPU, 1024 on a CPU]")
      ->check(at_least_1);
  command.add_option("--hidden", flags->hidden, "Width of the residual stream")
      ->check(at_least_1)
      ->capture_default_str();
  command.add_option("--mlp", flags->mlp, "Width of the MLP [2.75 times the hidden one]")
      ->check(at_least_1);
  command.add_option("--heads", flags->heads, "Heads [as many as give 128 columns to each]")
      ->check(at_least_1);
  command.add_option("--kv-heads", flags->kv_heads, "Key-value heads [as many as heads]")
      ->check(at_least_1);
  command
      .add_option("--dtype", flags->dtype, "Storage: bf16, fp32 on a CPU, or a recipe of 8 bits")
      ->check(type_or_recipe({"fp32", "bf16"}))
      ->capture_default_str();
  command.add_option("--phase", flags->phase, "forward, or both with the backward")
      ->check(CLI::IsMember({"forward", "both"}))
      ->capture_default_str();
  command
      .add_option("--objective", flags->objective,
                  "What to minimise: memory (saved for the backward) or speed (time) [speed on a "
                  "GPU, memory on a CPU]")
      ->check(CLI::IsMember({"memory", "speed"}));
  command.add_flag("--steps", flags->steps,
                   "On a GPU: also time each plan step alone, compared with its GEMMs");
  flags->bench.add_to(command);
  command.callback([flags] { bench_block(*flags); });
}

void add_start(CLI::App& bench) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App& command = *bench.add_subcommand(
      "start", "On a GPU: a new program's first call, a warm start of a block, a launch");
  command.add_flag("--json", *as_json, "Print one JSON object");
  command.callback([as_json] { bench_start(*as_json); });
}

}  // namespace

void add_bench(CLI::App& app) {
  auto flags = std::make_shared<ProgramBenchFlags>();
  CLI::App& command =
      *app.add_subcommand("bench",
                          "Compares a program's time with its GEMM alone, its operations one by "
                          "one and a copy of its bytes; or a block's time with its GEMMs");
  command.add_option("file", flags->file, "The program (.coda)")->type_name("FILE");
  add_program_flags(command, *flags);
  command.require_subcommand(0, 1);
  command.callback([flags, &command] {
    if (!command.get_subcommands().empty()) return;
    if (flags->file.empty()) throw CLI::RequiredError("file, or one of the subcommands");
    bench_program(*flags);
  });
  add_program(command);
  add_block(command);
  add_start(command);
}

}  // namespace coda::tools
