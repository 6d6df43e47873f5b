// SPDX-License-Identifier: Apache-2.0
// Whole optimizer steps of a LLaMA on a GPU, as `coda train` runs them: random ids, fp32 master
// weights, AdamW. Prints one line of JSON for scripts/bench_gpu.sh, which runs the peer
// (bench/peers/train_step.py) in turns with this. Started several times over, by torchrun or with
// RANK, LOCAL_RANK and WORLD_SIZE set, the processes train together, a GPU each. With
// --steps-of-plan it prints what each step of the plan takes instead, one after another with the
// GPU idle between.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <random>

#include "coda/backend.h"
#include "coda/communicator.h"
#include "coda/device.h"
#include "coda/eight_bits.h"
#include "coda/error.h"
#include "coda/model_trainer.h"
#include "coda/recompute.h"
#include "coda/step_memory.h"

namespace coda::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr int kHeatingOfSeveral = 8;  // steps

struct Flags {
  std::string model = "1b";
  int64_t layers = 0;  // 0: the model's
  int64_t batch = 16;
  int64_t sequence = 2048;
  int64_t accumulate = 1;
  int64_t steps = 9;
  double heat = 4;  // seconds before what is measured
  std::string attention = "repeatable";
  std::string dtype = "bf16";
  std::vector<std::string> fp8_except;
  std::string recompute = "norms";
  bool layers_on_host = false;
  std::string moments = "fp32";
  bool moments_on_host = false;
  std::string master_weights = "fp32";
  double memory = 0;  // GB
  double exchange_mib = 0;
  int64_t loss_rows = kAutomaticLossRows;
  bool prints_losses = false;
  bool steps_of_plan = false;
  bool fetches = false;
};

LlamaConfig config_of(const Flags& f) {
  LlamaConfig c;
  c.vocab = 128256;
  c.heads = 32;
  c.kv_heads = 8;
  c.rope_theta = 500000;
  c.max_positions = f.sequence;
  if (f.model == "1b") {  // LLaMA 3.2 1B
    c.layers = 16;
    c.hidden = 2048;
    c.head_dim = 64;
    c.mlp = 8192;
    c.tied = true;
  } else if (f.model == "3b") {  // LLaMA 3.2 3B
    c.layers = 28;
    c.hidden = 3072;
    c.heads = 24;
    c.head_dim = 128;
    c.mlp = 8192;
    c.tied = true;
  } else if (f.model == "qwen") {  // Qwen2.5 1.5B
    c.layers = 28;
    c.hidden = 1536;
    c.heads = 12;
    c.kv_heads = 2;
    c.head_dim = 128;
    c.mlp = 8960;
    c.vocab = 151936;
    c.rope_theta = 1e6;
    c.qkv_bias = true;
    c.tied = true;
  } else {  // blocks of LLaMA 3 8B
    c.layers = 4;
    c.hidden = 4096;
    c.head_dim = 128;
    c.mlp = 14336;
    c.tied = false;
  }
  if (f.layers > 0) c.layers = f.layers;
  return c;
}

Tokens random_tokens(int64_t count, int64_t vocab) {
  const auto ids = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(count));
  std::mt19937 random(1);
  std::uniform_int_distribution<int32_t> any(0, static_cast<int32_t>(vocab) - 1);
  for (int32_t& id : *ids) id = any(random);
  return {
      .source = "random ids", .owner = ids, .bytes = std::as_bytes(std::span(*ids)), .width = 4};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Programs that differ in their layer alone count together.
std::string kind_of(std::string name) {
  std::replace_if(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }, '#');
  return name;
}

void print_steps_of_plan(const Session& session) {
  std::map<std::string, std::pair<double, int>> kinds;
  double total = 0;
  for (const auto* timings : {&session.forward_timings(), &session.backward_timings()}) {
    for (const StepTiming& timing : *timings) {
      auto& [seconds, count] = kinds[kind_of(timing.name)];
      seconds += timing.seconds;
      ++count;
      total += timing.seconds;
    }
  }
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, sum] : kinds)
    sorted.emplace_back(sum.first, fmt::format("{:4} x {}", sum.second, name));
  std::sort(sorted.rbegin(), sorted.rend());
  for (const auto& [seconds, line] : sorted)
    fmt::print("{:9.3f} ms {:5.1f} %  {}\n", 1e3 * seconds, 100 * seconds / total, line);
  fmt::print("{:9.3f} ms in all\n", 1e3 * total);
}

// Of three steps by themselves, behind a state that was waited for, and beside one that is copied.
void print_fetches(ModelTrainer& trainer) {
  const auto seconds = [&](const std::function<void()>& fetch) {
    const auto begin = Clock::now();
    fetch();
    for (int i = 0; i < 3; ++i) trainer.step();
    return seconds_since(begin);
  };
  std::function<void()> fetched;
  std::vector<double> alone, behind, beside;
  for (int round = 0; round < 4; ++round) {
    alone.push_back(seconds([] {}));
    behind.push_back(seconds([&] { trainer.fetch(); }));
    beside.push_back(seconds([&] { fetched = trainer.start_fetch(); }));
    fetched();
  }
  fmt::print(
      "{{\"three_steps_s\": {:.3f}, \"behind_a_fetch_s\": {:.3f}, \"beside_a_fetch_s\": "
      "{:.3f}}}\n",
      median(alone), median(behind), median(beside));
}

int run(const Flags& f) {
  const auto start = Clock::now();
  const auto attention = f.attention == "fast"    ? GpuAttention::fast
                         : f.attention == "plain" ? GpuAttention::plain
                                                  : GpuAttention::repeatable;
  const ProcessPlace place = process_place();
  const bool is_alone = place.world == 1;
  const auto backend =
      make_backend("gpu", {.device = is_alone ? -1 : place.local_rank, .attention = attention});
  const auto communicator = is_alone ? nullptr : backend->join(place);
  ModelTrainSettings settings;
  settings.model = config_of(f);
  settings.storage = DType::bf16;
  settings.eight_bits = eight_bits_of(f.dtype);
  settings.eight_bits_except = f.fp8_except;
  const Recompute recompute = recompute_of(f.recompute);
  settings.objective = recompute.objective;
  settings.recomputed_layers = recompute.recomputed_layers;
  settings.layers_on_host = f.layers_on_host;
  const auto type_of = [](const std::string& name) {
    return name == "bf16" ? DType::bf16 : DType::f32;
  };
  settings.optimizer = make_optimizer("adamw", {}, type_of(f.moments));
  settings.optimizer.weights = type_of(f.master_weights);
  settings.optimizer.states_on_host = f.moments_on_host;
  settings.memory_limit = static_cast<int64_t>(f.memory * 1e9);
  settings.loss_rows = f.loss_rows;
  settings.batch = f.batch;
  settings.sequence = f.sequence;
  settings.accumulate = f.accumulate;
  settings.schedule = {.peak = 1e-4, .floor = 1e-5, .warmup_steps = 10, .total_steps = 1000};
  settings.timing = f.steps_of_plan;
  settings.communicator = communicator.get();
  settings.exchange_bytes = static_cast<int64_t>(f.exchange_mib * (1 << 20));
  const Tokens tokens = random_tokens(1 << 22, 128256);
  FittingStep fitting = fitting_step(settings, *backend, false);
  const int64_t free = backend->free_bytes();
  ModelTrainer trainer(std::move(fitting.step), tokens, *backend);
  const double ready = seconds_since(start);
  double loss = trainer.step().loss;
  const double first = seconds_since(start);
  if (f.steps_of_plan) {
    trainer.step();
    print_steps_of_plan(trainer.session());
    return 0;
  }
  if (f.fetches) {
    print_fetches(trainer);
    return 0;
  }
  trainer.start_step();
  std::string losses;
  const auto step = [&] {  // from one report to the next
    const auto begin = Clock::now();
    trainer.start_step();
    loss = trainer.finish_step().loss;
    if (f.prints_losses) losses += fmt::format("{}{:.7g}", losses.empty() ? "" : ", ", loss);
    return 1e3 * seconds_since(begin);
  };
  const auto hot = Clock::now();
  if (is_alone) {
    while (seconds_since(hot) < f.heat) step();
  } else {  // as many in all processes
    for (int i = 0; i < kHeatingOfSeveral; ++i) step();
  }
  std::vector<double> times;
  for (int64_t i = 0; i < f.steps; ++i) times.push_back(step());
  trainer.finish_step();
  if (place.rank > 0) return 0;
  if (!is_alone) fmt::print(stderr, "{}\n", trainer.exchange_text());
  const int64_t taken = free - backend->free_bytes();
  const double ms = median(times);
  const auto tokens_of_step = static_cast<double>(settings.tokens_of_step());
  fmt::print(
      "{{\"who\": \"coda\", \"gpus\": {}, \"products\": \"{}\", \"model\": \"{}\", \"layers\": {}, "
      "\"batch\": "
      "{}, \"sequence\": {}, "
      "\"attention\": \"{}\", \"ms\": {:.2f}, \"tokens_per_second\": {:.0f}, \"ready_s\": {:.1f}, "
      "\"first_step_s\": {:.1f}, \"loss\": {:.4f}, \"saved_gib\": {:.2f}, \"arena_gib\": {:.2f}, "
      "\"recompute\": \"{}{}\", \"moments\": \"{}{}\", \"master_weights\": \"{}\", \"said_gib\": "
      "{:.2f}, \"taken_gib\": {:.2f}, "
      "\"gpu\": \"{}\"{}}}\n",
      place.world, f.dtype, f.model, config_of(f).layers, f.batch, f.sequence, f.attention, ms,
      1e3 * tokens_of_step / ms, ready, first, loss,
      static_cast<double>(trainer.session().saved_bytes()) / (1 << 30),
      static_cast<double>(trainer.session().arena_bytes()) / (1 << 30), f.recompute,
      f.layers_on_host ? ", on the host" : "", f.moments, f.moments_on_host ? " on the host" : "",
      f.master_weights, static_cast<double>(fitting.memory.bytes()) / (1 << 30),
      static_cast<double>(taken) / (1 << 30), describe_gpu(),
      f.prints_losses ? ", \"losses\": [" + losses + "]" : "");
  return 0;
}

}  // namespace
}  // namespace coda::bench

int main(int argc, char** argv) {
  CLI::App app("Optimizer steps of a LLaMA on a GPU");
  coda::bench::Flags f;
  std::vector<std::string> dtypes = coda::eight_bits_names();
  dtypes.emplace_back("bf16");
  app.add_option("--model", f.model, "1b, 3b, 8b: blocks of the 8B model, or qwen: Qwen2.5 1.5B")
      ->check(CLI::IsMember({"1b", "3b", "8b", "qwen"}));
  app.add_option("--layers", f.layers, "0: the model's, 16, 28, 4 and 28");
  app.add_option("--batch", f.batch, "Sequences of a pass, of all processes");
  app.add_option("--sequence", f.sequence, "Tokens of a sequence");
  app.add_option("--accumulate", f.accumulate, "Passes of a step");
  app.add_option("--steps", f.steps, "That are measured");
  app.add_option("--heat", f.heat, "Seconds of steps before");
  app.add_option("--attention", f.attention, "repeatable, fast or plain");
  app.add_option("--recompute", f.recompute, "As coda train has it: none, norms, layer or layer:N");
  app.add_flag("--layers-on-host", f.layers_on_host, "As coda train has it");
  const auto types = CLI::IsMember({"fp32", "bf16"});
  app.add_option("--moments", f.moments, "As coda train has it: fp32 or bf16")->check(types);
  app.add_option("--master-weights", f.master_weights, "As coda train has it")->check(types);
  app.add_flag("--moments-on-host", f.moments_on_host, "As coda train has it");
  app.add_option("--memory", f.memory, "GB that a step may take; 0: what is free");
  app.add_option("--dtype", f.dtype, "Of products: bf16, or a recipe in 8 bits (docs/fp8.md)")
      ->check(CLI::IsMember(dtypes));
  app.add_option("--exchange-mib", f.exchange_mib,
                 "Of several processes: exchanges during the backward have so many MiB or more; "
                 "1e9: all of it behind the backward");
  app.add_option("--loss-rows", f.loss_rows, "Of the logits at once; 0: all");
  app.add_option("--fp8-except", f.fp8_except, "As coda train has it, one name after the other");
  app.add_flag("--losses", f.prints_losses, "The loss of each step, in the line");
  app.add_flag("--fetches", f.fetches,
               "Seconds of steps while the state is copied to the host, as for a checkpoint");
  app.add_flag("--steps-of-plan", f.steps_of_plan, "What each step of the plan takes");
  CLI11_PARSE(app, argc, argv);
  try {
    return coda::bench::run(f);
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_step: {}\n", error.what());
    return 1;
  }
}
