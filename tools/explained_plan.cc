// SPDX-License-Identifier: Apache-2.0
// Lifts programs, compiles graphs, and times plan steps on the CPU.
#include "explained_plan.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <random>
#include <set>

#include "coda/error.h"
#include "coda/graph_request.h"
#include "coda/lift.h"
#include "coda/program_file.h"
#include "coda/run_graph.h"
#include "coda/session.h"
#include "program_file.h"

namespace coda::tools {
namespace {

// " D, M".
std::string listed(const std::set<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? " " : ", ") + name;
  return list.empty() ? " none" : list;
}

// Throws Error for symbols without a size and for sizes of unknown symbols.
void require_known_sizes(const std::string& file, const std::set<std::string>& symbols,
                         const DimValues& sizes, const std::string& what) {
  for (const std::string& symbol : symbols) {
    require(sizes.contains(symbol), file + ": the size " + symbol +
                                        " is not known: give it, as in --sizes " + symbol +
                                        "=1024");
  }
  for (const auto& [symbol, value] : sizes) {
    require(symbols.contains(symbol), "--sizes: " + symbol + " is no size of the " + what +
                                          (what == "graph" ? ", it has" : ", they have") +
                                          listed(symbols) + ": check the name");
  }
}

}  // namespace

StepCost ExplainedPlan::total() const {
  StepCost sum;
  for (const ExplainedStep& s : steps) {
    sum.flops += s.cost.flops;
    sum.bytes += s.cost.bytes;
    sum.seconds += s.cost.seconds;
  }
  return sum;
}

std::optional<double> ExplainedPlan::measured() const {
  double sum = 0;
  for (const ExplainedStep& s : steps) {
    if (!s.measured) return std::nullopt;
    sum += *s.measured;
  }
  return sum;
}

ExplainedPlan explain(ExplainedGraph source) {
  ExplainedPlan e;
  e.source = std::move(source);
  const CompileOptions& options = e.source.options;
  e.compiled = compile(e.source.get(), e.source.request, options);
  const Plan& plan = e.compiled.plan;
  auto add = [&](const std::vector<PlanStep>& steps, bool is_backward) {
    for (const PlanStep& step : steps) {
      e.steps.push_back(
          {&step, is_backward, cost_of(step, plan, options.sizes, options.rates), {}});
    }
  };
  add(plan.forward, false);
  add(plan.backward, true);
  return e;
}

std::vector<double> measure_plan(const Plan& plan, const DimValues& sizes) {
  constexpr int kRounds = 5;
  const auto backend = make_backend("cpu");
  Session session(plan, *backend, sizes, {.timing = true});
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.1F);
  for (auto& [name, tensor] : session.allocate()) {
    if (!is_floating(tensor.dtype())) continue;
    std::vector<float> values(static_cast<size_t>(tensor.size()));
    for (float& v : values) v = normal(random);
    tensor.set(values);
  }
  std::vector<std::vector<double>> times(plan.forward.size() + plan.backward.size());
  for (int round = 0; round <= kRounds; ++round) {
    session.forward();
    if (!plan.backward.empty()) session.backward();
    if (round == 0) continue;  // warms up caches
    size_t i = 0;
    for (const StepTiming& t : session.forward_timings()) times[i++].push_back(t.seconds);
    for (const StepTiming& t : session.backward_timings()) times[i++].push_back(t.seconds);
  }
  std::vector<double> medians;
  for (std::vector<double>& of_step : times) {
    std::sort(of_step.begin(), of_step.end());
    medians.push_back(of_step[kRounds / 2]);
  }
  return medians;
}

namespace {

// The type of matrices that a plan adds: the 16-bit type that a GEMM of the program reads, else
// fp32.
DType usual_storage(const Program& program) {
  for (const Step& step : program.steps) {
    if (step.kind() != StepKind::gemm) continue;
    const DType type = program.tensors[step.segments().front().a].dtype;
    if (size_of(type) == 2) return type;
  }
  return DType::f32;
}

}  // namespace

ExplainedGraph load_programs(const std::vector<std::string>& files, const DimValues& sizes,
                             bool with_gradients, const PrepareLifted& prepare) {
  ExplainedGraph result;
  result.options.sizes = sizes;
  if (std::optional<NamedGraph> named = read_lone_graph(files)) {
    try {
      result.request = graph_request(*named, with_gradients);
    } catch (const Error& error) {
      throw Error(files.front() + ": " + error.what());
    }
    require_known_sizes(files.front(), symbols_of(*named), sizes, "graph");
    result.options.storage = usual_storage(*named);
    result.graph = std::make_unique<Graph>(std::move(named->graph));
    return result;
  }
  result.graph = std::make_unique<Graph>();
  LiftedTensors tensors;
  for (const std::string& file : files) {
    const std::vector<Program> programs = read_programs(file);
    try {
      for (const Program& program : programs) {
        if (result.options.storage == DType::f32) result.options.storage = usual_storage(program);
        lift(program, *result.graph, tensors);
      }
    } catch (const Error& error) {
      throw Error(file + ": " + error.what());
    }
  }
  Graph& graph = *result.graph;
  reduce_partials(tensors);
  std::set<std::string> symbols;
  for (int id = 0; id < graph.size(); ++id) {
    for (const Dim& dim : {graph.node(id).shape.rows, graph.node(id).shape.cols}) {
      for (const auto& [symbol, count] : dim.terms()) symbols.insert(symbol);
    }
  }
  std::vector<NamedValue> more;
  if (prepare) more = prepare(graph, tensors);
  result.request = program_request(graph, tensors, with_gradients);
  result.request.outputs.insert(result.request.outputs.end(), more.begin(), more.end());
  require(!result.request.outputs.empty(), files.front() + ": the programs store nothing");
  require_known_sizes(files.front(), symbols, sizes, "programs");
  return result;
}

DimValues parse_sizes(const std::vector<std::string>& sizes) {
  DimValues values;
  for (const std::string& word : sizes) {
    const size_t equals = word.find('=');
    int64_t value = 0;
    const char* end = word.data() + word.size();
    const bool is_number = equals != std::string::npos &&
                           std::from_chars(word.data() + equals + 1, end, value).ptr == end &&
                           value > 0;
    // Reports a wrong command line, as for any option that cannot be parsed.
    const auto expect = [](bool holds, const std::string& otherwise) {
      if (!holds) throw CLI::ValidationError("--sizes", otherwise);
    };
    expect(is_number,
           "'" + word + "' is no size; write NAME=NUMBER, from 1 on, as in M=2048,D=576");
    expect(value <= INT32_MAX, "'" + word + "' is too large; sizes are at most 2147483647");
    const auto [known, is_new] = values.emplace(word.substr(0, equals), value);
    expect(is_new || known->second == value, known->first + " is given twice, as " +
                                                 std::to_string(known->second) + " and " +
                                                 std::to_string(value) + ": give it once");
  }
  return values;
}

}  // namespace coda::tools
