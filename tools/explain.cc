// SPDX-License-Identifier: Apache-2.0
// coda explain: the plan of a model, fused against unfused.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint.h"
#include "coda/compile.h"
#include "commands.h"
#include "cpu/cpu_backend.h"
#include "model_flags.h"
#include "train/model_runner.h"

namespace coda::tools {
namespace {

using nlohmann::ordered_json;

struct ExplainFlags {
  ModelFlags model;
  std::string task = "train";
  int64_t batch = 1;
  int64_t sequence = 2048;
  std::string dtype = "fp32";
  std::string objective = "memory";
  std::string rates = "cpu";
  bool measure = false;
  bool json = false;
  bool brief = false;
};

struct ExplainedStep {
  const PlanStep* step = nullptr;
  bool is_backward = false;
  StepCost cost;
  std::optional<double> measured;  // seconds
};

// A compiled plan with what each step costs.
struct Explained {
  train::TaskGraph task;
  Compiled compiled;
  std::vector<ExplainedStep> steps;

  StepCost total() const {
    StepCost sum;
    for (const ExplainedStep& s : steps) {
      sum.flops += s.cost.flops;
      sum.bytes += s.cost.bytes;
      sum.seconds += s.cost.seconds;
    }
    return sum;
  }
  std::optional<double> measured() const {
    double sum = 0;
    for (const ExplainedStep& s : steps) {
      if (!s.measured) return std::nullopt;
      sum += *s.measured;
    }
    return sum;
  }
  double saved() const { return saved_bytes(compiled.plan, task.options.sizes); }
};

const char* name_of(StepRole role) {
  switch (role) {
    case StepRole::gemm: return "gemm";
    case StepRole::tile: return "tile";
    case StepRole::finalizer: return "finalizer";
    case StepRole::opaque: return "opaque";
  }
  return "?";
}

train::RunnerOptions runner_options(const ExplainFlags& flags, bool fuse) {
  const std::map<std::string, train::Task> tasks{{"train", train::Task::gradients},
                                                 {"eval", train::Task::losses},
                                                 {"sample", train::Task::logits}};
  return {.task = tasks.at(flags.task),
          .storage = storage_type(flags.dtype),
          .batch = flags.batch,
          .sequence = flags.sequence,
          .fuse = fuse,
          .timing = true};
}

train::TaskGraph task_of(const ExplainFlags& flags, const ModelConfig& config, bool fuse) {
  train::TaskGraph task = train::make_task(config, runner_options(flags, fuse));
  task.options.rates = flags.rates == "h200" ? h200_rates() : cpu_rates();
  task.options.objective = flags.objective == "speed" ? Objective::speed : Objective::memory;
  return task;
}

// Medians of the steps' times over a few runs on this machine's CPU.
void measure(const ExplainFlags& flags, const ModelConfig& config, bool fuse, Explained& plan) {
  constexpr int kRounds = 5;
  const auto backend = cpu::make_cpu_backend();
  train::ModelRunner runner(task_of(flags, config, fuse), runner_options(flags, fuse), *backend);
  train::Weights weights = train::initial_weights(runner.model(), 1);
  runner.bind(weights);
  std::vector<int32_t> ids(static_cast<size_t>(flags.batch * flags.sequence));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>(static_cast<int64_t>(i * 31) % runner.model().vocabulary);
  }
  std::vector<std::vector<double>> times(plan.steps.size());
  for (int round = 0; round <= kRounds; ++round) {
    runner.forward(ids, ids);
    if (!runner.session().plan().backward.empty()) runner.backward(1);
    if (round == 0) continue;  // warms caches up
    size_t i = 0;
    for (const StepTiming& t : runner.session().forward_timings()) times[i++].push_back(t.seconds);
    for (const StepTiming& t : runner.session().backward_timings()) times[i++].push_back(t.seconds);
  }
  for (size_t i = 0; i < times.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    plan.steps[i].measured = times[i][kRounds / 2];
  }
}

Explained explain(const ExplainFlags& flags, const ModelConfig& config, bool fuse) {
  Explained e;
  e.task = task_of(flags, config, fuse);
  e.compiled = compile(e.task.model->graph, e.task.request, e.task.options);
  const Plan& plan = e.compiled.plan;
  auto add = [&](const std::vector<PlanStep>& steps, bool is_backward) {
    for (const PlanStep& step : steps) {
      e.steps.push_back({&step,
                         is_backward,
                         cost_of(step, plan, e.task.options.sizes, e.task.options.rates),
                         {}});
    }
  };
  add(plan.forward, false);
  add(plan.backward, true);
  if (flags.measure) measure(flags, config, fuse, e);
  return e;
}

ordered_json json_of(const StepCost& cost) {
  return {{"flops", cost.flops}, {"bytes", cost.bytes}, {"predicted_seconds", cost.seconds}};
}

ordered_json json_of(const Explained& plan) {
  ordered_json steps = ordered_json::array();
  for (const ExplainedStep& s : plan.steps) {
    ordered_json step{{"name", s.step->name},
                      {"phase", s.is_backward ? "backward" : "forward"},
                      {"kind", name_of(s.step->role)}};
    step.update(json_of(s.cost));
    if (s.measured) step["measured_seconds"] = *s.measured;
    if (const auto* program = std::get_if<Program>(&s.step->work)) {
      step["program"] = text(*program);
    } else {
      step["function"] = std::get<OpaqueCall>(s.step->work).function;
    }
    step["reasons"] = s.step->reasons;
    steps.push_back(std::move(step));
  }
  ordered_json out = json_of(plan.total());
  if (const auto seconds = plan.measured()) out["measured_seconds"] = *seconds;
  out["saved_bytes"] = plan.saved();
  out["steps"] = std::move(steps);
  return out;
}

void print_json(const ModelConfig& config, const ExplainFlags& flags, const Explained& fused,
                const Explained& unfused) {
  ordered_json out{{"model", text(config)},       {"task", flags.task},   {"batch", flags.batch},
                   {"sequence", flags.sequence},  {"dtype", flags.dtype}, {"rates", flags.rates},
                   {"objective", flags.objective}};
  out["fused"] = json_of(fused);
  out["unfused"] = json_of(unfused);
  out["alternatives"] = ordered_json::array();
  for (const Alternative& a : fused.compiled.alternatives) {
    out["alternatives"].push_back({{"choice", a.choice},
                                   {"predicted_seconds", a.seconds},
                                   {"moved_bytes", a.moved_bytes},
                                   {"saved_bytes", a.saved_bytes},
                                   {"chosen", a.chosen}});
  }
  fmt::print("{}\n", out.dump(2));
}

std::string measured_text(std::optional<double> seconds) {
  return seconds ? fmt::format("{:11.3f} ms", *seconds * 1e3) : std::string();
}

void print_steps(const Explained& plan) {
  const bool has_times = plan.measured().has_value();
  fmt::print("\n{:4} {:10} {:>10} {:>12} {:>12}{}  {}\n", "", "kind", "GFLOP", "bytes", "predicted",
             has_times ? "      measured" : "", "step");
  size_t i = 0;
  for (const ExplainedStep& s : plan.steps) {
    fmt::print("{:4} {:10} {:10.3f} {:9.2f} MB {:9.3f} ms{}  {}{}\n", ++i, name_of(s.step->role),
               s.cost.flops / 1e9, s.cost.bytes / 1e6, s.cost.seconds * 1e3,
               measured_text(s.measured), s.is_backward ? "backward " : "forward ", s.step->name);
  }
}

void print_total(const char* name, const Explained& plan) {
  const StepCost total = plan.total();
  fmt::print("  {:8} {:6} {:10.3f} {:9.2f} MB {:9.2f} MB {:9.3f} ms{}\n", name, plan.steps.size(),
             total.flops / 1e9, total.bytes / 1e6, plan.saved() / 1e6, total.seconds * 1e3,
             measured_text(plan.measured()));
}

void print_text(const ModelConfig& config, const ExplainFlags& flags, const Explained& fused,
                const Explained& unfused) {
  fmt::print("{}\n{}: {} sequences of {} tokens, {}, rates of {}, least {} first\n\n", text(config),
             flags.task, flags.batch, flags.sequence, flags.dtype,
             flags.rates == "h200" ? "an H200" : "a CPU",
             flags.objective == "speed" ? "time" : "saved memory");
  if (!flags.brief) {
    fmt::print("{}", text(fused.compiled.plan, fused.task.options.sizes, fused.task.options.rates));
  }
  print_steps(fused);
  fmt::print("\n  {:8} {:>6} {:>10} {:>12} {:>12} {:>12}{}\n", "", "steps", "GFLOP", "moved",
             "saved", "predicted", flags.measure ? "      measured" : "");
  print_total("fused", fused);
  print_total("unfused", unfused);
  if (fused.compiled.alternatives.empty()) return;
  fmt::print("\nplans compared (*: chosen)\n");
  for (const Alternative& a : fused.compiled.alternatives) {
    fmt::print("  {} {:9.3f} ms {:9.2f} MB moved {:9.2f} MB saved  {}\n", a.chosen ? '*' : ' ',
               a.seconds * 1e3, a.moved_bytes / 1e6, a.saved_bytes / 1e6, a.choice);
  }
}

void run(const ExplainFlags& flags) {
  const ModelConfig config = flags.model.build(flags.sequence);
  const Explained fused = explain(flags, config, true);
  const Explained unfused = explain(flags, config, false);
  if (flags.json) {
    print_json(config, flags, fused, unfused);
  } else {
    print_text(config, flags, fused, unfused);
  }
}

}  // namespace

void add_explain(CLI::App& app) {
  auto flags = std::make_shared<ExplainFlags>();
  flags->model.sizes.layers = 1;
  CLI::App& command = *app.add_subcommand(
      "explain",
      "The plan of a model: programs and epilogues, bytes, flops and time, fused and "
      "unfused, and why each operation stands where it stands");
  flags->model.add_to(command);
  const auto at_least_1 = CLI::Range(int64_t{1}, int64_t{INT32_MAX});
  command.add_option("--task", flags->task, "What is planned: train, eval or sample")
      ->check(CLI::IsMember({"train", "eval", "sample"}))
      ->capture_default_str();
  command.add_option("--batch", flags->batch, "Sequences")
      ->check(at_least_1)
      ->capture_default_str();
  command.add_option("--sequence", flags->sequence, "Tokens of each")
      ->check(at_least_1)
      ->capture_default_str();
  command.add_option("--dtype", flags->dtype, "Storage of weights and activations: fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command.add_option("--objective", flags->objective, "What comes first, saved memory or speed")
      ->check(CLI::IsMember({"memory", "speed"}))
      ->capture_default_str();
  command.add_option("--rates", flags->rates, "Whose rates the cost model uses: cpu or h200")
      ->check(CLI::IsMember({"cpu", "h200"}))
      ->capture_default_str();
  command.add_flag("--measure", flags->measure,
                   "Run it here, on the CPU, and show each step's time");
  command.add_flag("--brief", flags->brief, "Leave the programs out, show the table of steps");
  command.add_flag("--json", flags->json, "Everything as one JSON object");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
