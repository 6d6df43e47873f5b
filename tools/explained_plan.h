// SPDX-License-Identifier: Apache-2.0
// A compiled plan with the cost of each step, for `coda explain`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coda/compile.h"
#include "coda/lift.h"
#include "coda/models.h"
#include "coda/step_memory.h"

namespace coda::tools {

// What to compile: the graph of a model, or one lifted from programs.
struct ExplainedGraph {
  std::unique_ptr<ModelGraph> model;
  std::unique_ptr<Graph> graph;
  CompileRequest request;
  CompileOptions options;

  const Graph& get() const { return model ? model->graph : *graph; }
};

struct ExplainedStep {
  const PlanStep* step = nullptr;
  bool is_backward = false;
  StepCost cost;
  std::optional<double> measured;  // seconds
};

struct ExplainedPlan {
  ExplainedGraph source;
  Compiled compiled;
  std::vector<ExplainedStep> steps;

  StepCost total() const;
  std::optional<double> measured() const;
  double saved() const { return saved_bytes(compiled.plan, source.options.sizes); }
};

ExplainedPlan explain(ExplainedGraph source);

// Times of a plan's steps: medians of a few runs on the CPU backend with random numbers (indices
// are 0).
std::vector<double> measure_plan(const Plan& plan, const DimValues& sizes);

// The graph of a file, or the programs of the files, in order, lifted to a graph. The graph
// computes what the programs store. The plan's own matrices have the 16-bit type that products
// read, else fp32. `with_gradients`: also compute the gradients of all inputs. `prepare` may change
// the lifted graph; it returns further outputs, which have no gradient.
using PrepareLifted = std::function<std::vector<NamedValue>(Graph&, LiftedTensors&)>;
ExplainedGraph load_programs(const std::vector<std::string>& files, const DimValues& sizes,
                             bool with_gradients, const PrepareLifted& prepare = {});

// Parses "M=2048,D=576". Throws CLI::ValidationError for invalid or contradictory sizes.
DimValues parse_sizes(const std::vector<std::string>& sizes);

// `title` is what is explained, `how` its sizes and settings.
struct Explanation {
  std::string title;
  std::string how;
  const ExplainedPlan* fused = nullptr;
  const ExplainedPlan* unfused = nullptr;
  std::optional<StepMemory> memory{};  // of a training step
  std::string prediction{};            // what the predicted times of a GPU are; empty: on a CPU
};
void print_json(const Explanation& what);
// `brief`: omits the programs.
void print_text(const Explanation& what, bool brief);

}  // namespace coda::tools
