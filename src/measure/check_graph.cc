// SPDX-License-Identifier: Apache-2.0
// The plan of a graph against the graph in float64. How large an error may be is found as for
// programs: the graph is evaluated with random errors of fp32 at each value.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "base/relative_error.h"
#include "coda/device.h"
#include "coda/error.h"
#include "coda/graph_request.h"
#include "coda/run_graph.h"
#include "cpu/cpu_backend.h"
#include "gpu/gpu_backend.h"
#include "ir/evaluate_graph.h"
#include "measure/graph_inputs.h"
#include "measure/host_tensor.h"
#include "measure/random_inputs.h"
#include "runtime/reference_backend.h"

namespace coda {
namespace {

using measure::GraphValues;

constexpr double kMostCheckSeconds = 600;
constexpr int kNoisy = 3;
constexpr double kSum = 0x1p-22;        // of a value in fp32, that it is summed of
constexpr double kLargerThanNoise = 3;  // an evaluation may be lucky
constexpr double kArithmetic = 1e-5;    // as of programs

// What rounding to the type does to a random number: the unit of its last place.
double rounding_of(DType type) {
  switch (size_of(type)) {
    case 1: return 0.1;
    case 2: return type == DType::f16 ? 0x1p-11 : 0x1p-8;
    default: return 0;
  }
}

struct Exact {
  std::vector<Matrix> values;  // of the outputs, in their order
  std::vector<double> noise;   // the largest error of evaluations with noise
};

std::vector<int> roots_of(const NamedGraph& named) {
  std::vector<int> roots;
  for (const NamedValue& output : named.outputs) roots.push_back(output.value.id);
  return roots;
}

Exact exact_of(const NamedGraph& named, const DimValues& sizes, const GraphValues& inputs,
               uint64_t seed) {
  const std::vector<int> roots = roots_of(named);
  Exact exact{evaluate(named.graph, roots, inputs, sizes), std::vector<double>(roots.size(), 0)};
  std::mt19937_64 random(seed);
  // What the plan stores of it is not known here: any value may be.
  const double noise = kSum + rounding_of(usual_storage(named));
  std::uniform_real_distribution<double> within(-noise, noise);
  const AfterNode disturb = [&](int id, const std::vector<const Matrix*>&,
                                std::vector<Matrix>& all) {
    const Op op = named.graph.node(id).op;
    if (op == Op::input || op == Op::constant || op == Op::column_index || op == Op::ones) return;
    for (Matrix& value : all) {
      for (double& x : value.data) x *= 1 + within(random);
    }
  };
  for (int round = 0; round < kNoisy; ++round) {
    const std::vector<Matrix> noisy = evaluate(named.graph, roots, inputs, sizes, disturb);
    for (size_t i = 0; i < roots.size(); ++i)
      exact.noise[i] =
          std::max(exact.noise[i], relative_error(noisy[i].data, exact.values[i].data));
  }
  return exact;
}

bool is_finite(const std::vector<Matrix>& values) {
  return std::all_of(values.begin(), values.end(), [](const Matrix& m) {
    return std::all_of(m.data.begin(), m.data.end(), [](double x) { return std::isfinite(x); });
  });
}

// Arrays of all outputs, in their order.
std::vector<Array> results_of(const NamedGraph& named, const measure::GraphRun& run) {
  std::vector<Array> results;
  for (const NamedValue& output : named.outputs)
    results.push_back(measure::array_of(run.decls.at(output.name), run.outputs.at(output.name)));
  return results;
}

bool same_bits(const std::vector<Array>& a, const std::vector<Array>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < a[i].values.size(); ++k) {
      const double x = a[i].values[k];
      const double y = b[i].values[k];
      if (x != y && !(std::isnan(x) && std::isnan(y))) return false;
    }
  }
  return true;
}

using NamedBackend = std::pair<std::string, std::unique_ptr<Backend>>;

// What the first computes beside what is exact, and whether all compute the same bits.
void check_on(const std::vector<NamedBackend>& configurations, const NamedGraph& named,
              const DimValues& sizes, const GraphValues& inputs, const Exact& exact,
              CheckedBackend& result) {
  const auto run = [&](Backend& backend) {
    return measure::run_plan_of(named, sizes, inputs, backend, true);
  };
  measure::GraphRun first;
  try {
    first = run(*configurations.front().second);
  } catch (const Error& error) {
    result.refused = error.what();
    return;
  }
  const std::vector<Array> results = results_of(named, first);
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorDecl& decl = first.decls.at(named.outputs[i].name);
    const std::vector<double>& wanted = exact.values[i].data;
    result.tensors.push_back(
        {decl, relative_error(results[i].values, wanted),
         kArithmetic + kLargerThanNoise * exact.noise[i] + rounding_of(decl.dtype),
         std::count_if(wanted.begin(), wanted.end(), [](double x) { return !std::isfinite(x); }),
         std::all_of(wanted.begin(), wanted.end(), [](double x) { return std::isnan(x); })});
  }
  for (size_t i = 0; i < configurations.size(); ++i) {
    const auto& [name, backend] = configurations[i];
    if (!same_bits(results_of(named, run(*backend)), results))
      result.different.push_back(i == 0 ? "a second run" : name);
    ++result.configurations;
  }
}

}  // namespace

CheckReport check_graph(const NamedGraph& named, const DimValues& sizes,
                        const CheckOptions& options) {
  for (const std::string& symbol : symbols_of(named))
    require(sizes.contains(symbol), "the size " + symbol + " of graph '" + named.name +
                                        "' is not known: give it, as in --sizes " + symbol +
                                        "=128");
  const std::string why = options.backend == "cpu" ? "" : why_no_gpu();
  require(options.backend != "gpu" || why.empty(), why);
  require((kNoisy + 2) * measure::evaluation_seconds(named, sizes) < kMostCheckSeconds,
          "graph '" + named.name +
              "': the reference in float64 would take more than ten minutes; check it at smaller "
              "sizes");
  CheckReport report;
  GraphValues inputs = measure::random_graph_inputs(named, sizes, options.seed);
  report.has_positive_inputs =
      measure::make_finite(inputs, measure::uses_of_inputs(named), measure::inputs_of(named),
                           [&](const GraphValues& of) {
                             return is_finite(evaluate(named.graph, roots_of(named), of, sizes));
                           });
  const Exact exact = exact_of(named, sizes, inputs, options.seed);
  const auto check = [&](const std::string& name, const std::vector<NamedBackend>& configurations) {
    check_on(configurations, named, sizes, inputs, exact,
             report.backends.emplace_back(CheckedBackend{.name = name}));
  };
  std::vector<NamedBackend> plan;
  plan.emplace_back("as written", std::make_unique<ReferenceBackend>());
  check("plan", plan);
  if (options.backend != "gpu") {
    std::vector<NamedBackend> cpu;
    cpu.emplace_back("as chosen", cpu::make_cpu_backend({}));
    cpu.emplace_back("one thread", cpu::make_cpu_backend({.threads = 1}));
    cpu.emplace_back("tiles of 64 x 64", cpu::make_cpu_backend({.tile_rows = 64, .tile_cols = 64}));
    check("cpu", cpu);
  }
  if (options.backend != "cpu" && why.empty()) {
    std::vector<NamedBackend> gpu;
    gpu::GpuOptions gpu_options;
    gpu_options.target = options.target;
    gpu.emplace_back("as chosen", gpu::make_gpu_backend(gpu_options));
    check("gpu", gpu);
  }
  return report;
}

}  // namespace coda
