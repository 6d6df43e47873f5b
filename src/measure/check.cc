// SPDX-License-Identifier: Apache-2.0
#include "coda/check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "coda/backend.h"
#include "coda/device.h"
#include "coda/error.h"
#include "cpu/cpu_backend.h"
#include "gpu/gpu_backend.h"
#include "gpu/jit/parallel_for.h"
#include "gpu/launch/context.h"
#include "gpu/lower.h"
#include "measure/chain.h"
#include "measure/guarded_run.h"
#include "measure/random_inputs.h"
#include "measure/reference_time.h"
#include "measure/traps.h"
#include "program/judge.h"

namespace coda {
namespace {

// A backend with one way to cut a program into tiles.
struct Configuration {
  std::string name;
  std::unique_ptr<Backend> backend;
};

std::vector<Configuration> cpu_configurations(size_t count) {
  std::vector<Configuration> made;
  const auto add = [&](const char* name, const cpu::CpuOptions& options) {
    if (made.size() >= std::max<size_t>(count, 1)) return;
    made.push_back({name, cpu::make_cpu_backend(options)});
  };
  add("as chosen", {});
  add("one thread", {.threads = 1});
  add("tiles of 64 x 64", {.tile_rows = 64, .tile_cols = 64});
  add("tiles of 128 x 256", {.tile_rows = 128, .tile_cols = 256});
  return made;
}

std::vector<Configuration> gpu_configurations(const Program& program, const DimValues& sizes,
                                              size_t count, const std::string& target) {
  std::vector<std::optional<gpu::GemmConfig>> choices{std::nullopt};
  const gpu::LowerOptions lowering{.target = &gpu::target_of(gpu::Context().info(), target)};
  for (const gpu::GemmConfig& choice : gpu::legal_choices(program, sizes, lowering)) {
    if (choices.size() < count) choices.emplace_back(choice);
  }
  std::vector<Configuration> made;
  for (const auto& choice : choices) {
    gpu::GpuOptions options;
    options.target = target;
    options.lowering = [choice](const Program& lowered, const DimValues& of,
                                const gpu::LowerOptions& asked) {
      gpu::LowerOptions with = asked;
      if (choice) with.choice = choice;
      return gpu::plan_program(lowered, of, with).plan;
    };
    made.push_back({choice ? gpu::text(*choice) : "as chosen", gpu::make_gpu_backend(options)});
  }
  // At once; what cannot be compiled says so when it is run.
  gpu::parallel_for(made.size(), 0, [&](size_t i) {
    const AnnouncedProgram announced{&program, sizes};
    try {
      made[i].backend->announce({&announced, 1}, {});
    } catch (const Error&) {
    }
  });
  return made;
}

// Of the first inputs: whether they serve, exact, rounded as stored.
constexpr double kEvaluations = 3;

// What the configurations compute; the first is as chosen, and is compared with the reference.
void check_on(const std::vector<Configuration>& configurations, const Program& program,
              const DimValues& sizes, const measure::TensorValues& inputs, program::Judge& judge,
              bool traps, CheckedBackend& result) {
  const auto run = [&](const Configuration& configuration) {
    return measure::run_between_guards(*configuration.backend, program, sizes, inputs);
  };
  const measure::GuardedRun first = run(configurations.front());
  result.overrun = first.overrun;
  for (const TensorDecl& decl : program.tensors) {
    const auto expected = judge.exact().find(decl.name);
    if (expected == judge.exact().end()) continue;
    const program::Judge::Verdict verdict = judge.of(decl.name, first.results.at(decl.name));
    const auto count = [&](const auto& is) {
      return std::count_if(expected->second.begin(), expected->second.end(), is);
    };
    const int64_t not_finite = count([](double x) { return !std::isfinite(x); });
    const int64_t nan = count([](double x) { return std::isnan(x); });
    result.tensors.push_back(
        {decl, verdict.error, verdict.bound, not_finite, nan == std::ssize(expected->second)});
  }
  if (run(configurations.front()).bits != first.bits) result.different.emplace_back("a second run");
  result.configurations = 1;
  for (size_t i = 1; i < configurations.size(); ++i) {
    const std::string& name = configurations[i].name;
    try {
      if (run(configurations[i]).bits != first.bits) result.different.push_back(name);
      ++result.configurations;
    } catch (const Error& error) {
      result.left_out.push_back(name + ": refused: " + error.what());
    }
  }
  if (traps)
    measure::check_traps(*configurations.front().backend, program, sizes, inputs, first, result);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string text(const CheckedTensor& tensor) {
  const TensorDecl& decl = tensor.decl;
  const char* partials = decl.kind == TensorKind::row_partial      ? " partials by rows"
                         : decl.kind == TensorKind::column_partial ? " partials by columns"
                                                                   : "";
  char line[256];
  std::snprintf(line, sizeof line, "%-20.80s %-4s %-24.80s error %.2e, bound %.2e  %s",
                decl.name.c_str(), std::string(name_of(decl.dtype)).c_str(),
                (decl.shape.text() + partials).c_str(), tensor.error, tensor.bound,
                tensor.is_right() ? "ok" : "WRONG");
  if (tensor.is_nan)
    return line + std::string(" (all elements are NaN for any inputs, so nothing can be compared)");
  return line + (tensor.not_finite == 0
                     ? ""
                     : " (" + std::to_string(tensor.not_finite) + " elements are not finite)");
}

}  // namespace

bool CheckedBackend::is_right() const {
  return overrun.empty() && different.empty() && wrong_traps.empty() &&
         std::all_of(tensors.begin(), tensors.end(),
                     [](const CheckedTensor& tensor) { return tensor.is_right(); });
}

bool CheckReport::is_right() const {
  return std::all_of(backends.begin(), backends.end(),
                     [](const CheckedBackend& backend) { return backend.is_right(); });
}

std::string text(const CheckReport& report) {
  std::string lines;
  if (report.has_positive_inputs)
    lines += "  inputs are positive: of negative ones not all results are finite\n";
  for (const CheckedBackend& backend : report.backends) {
    const auto add = [&](const std::string& line) {
      lines += "  " + backend.name + ": " + line + "\n";
    };
    if (!backend.refused.empty()) {
      add("refused: " + backend.refused);
      continue;
    }
    if (!backend.overrun.empty())
      add("WRONG: memory outside was written, beside " + joined(backend.overrun));
    for (const CheckedTensor& tensor : backend.tensors) add(text(tensor));
    for (const std::string& one : backend.left_out) add(one);
    add(backend.different.empty()
            ? "the same bits in two runs and " + std::to_string(backend.configurations) +
                  " configuration" + (backend.configurations == 1 ? "" : "s")
            : "WRONG: other bits in: " + joined(backend.different));
    if (!backend.traps.empty()) add("right too: " + joined(backend.traps));
    for (const std::string& wrong : backend.wrong_traps) add("WRONG: " + wrong);
    for (const std::string& note : backend.notes) add("note: " + note);
  }
  return lines;
}

CheckReport check_program(const Program& program, const DimValues& sizes,
                          const CheckOptions& options) {
  require(options.backend.empty() || options.backend == "cpu" || options.backend == "gpu",
          "the backend to check must be \"cpu\", \"gpu\" or empty (all backends), not '" +
              options.backend + "'");
  const std::string why = options.backend == "cpu" ? "" : why_no_gpu();
  require(options.backend != "gpu" || why.empty(), why);
  constexpr double kWorthALine = 3;
  constexpr double kMostForTraps = 1;  // each takes as long again
  measure::require_short({&program, 1}, sizes, kEvaluations);
  const double seconds = kEvaluations * measure::evaluation_seconds(program, sizes);
  if (seconds > kWorthALine)
    options.says("the reference in float64 takes about " + std::to_string(std::lround(seconds)) +
                 " s");
  const bool traps = options.traps && seconds < kMostForTraps;
  CheckReport report;
  measure::TensorValues inputs = measure::random_inputs(program, sizes, options.seed);
  report.has_positive_inputs = measure::make_finite(
      inputs, measure::uses_of_inputs({&program, 1}), measure::tensors_of({&program, 1}).inputs,
      [&](const measure::TensorValues& of) {
        return measure::is_finite(program::evaluate(program, sizes, of));
      });
  program::Judge judge(program, sizes, inputs);
  if (options.backend != "gpu") {
    check_on(cpu_configurations(options.configurations), program, sizes, inputs, judge, traps,
             report.backends.emplace_back(CheckedBackend{.name = "cpu"}));
  }
  if (options.backend == "cpu" || !why.empty()) return report;
  CheckedBackend& gpu = report.backends.emplace_back(CheckedBackend{.name = "gpu"});
  std::vector<Configuration> configurations;
  try {
    configurations = gpu_configurations(program, sizes, options.configurations, options.target);
    gpu::lower(program, sizes, {});
  } catch (const Error& error) {
    gpu.refused = error.what();
    return report;
  }
  check_on(configurations, program, sizes, inputs, judge, traps, gpu);
  return report;
}

}  // namespace coda
