// SPDX-License-Identifier: Apache-2.0
// The backward that the compiler derives, against finite differences: how much the sum of all
// outputs, each times its upstream gradient, changes along a random direction of one input.
#include <algorithm>
#include <cmath>
#include <random>

#include "coda/check.h"
#include "coda/compile.h"
#include "coda/error.h"
#include "coda/graph_request.h"
#include "coda/lift.h"
#include "coda/run_graph.h"
#include "coda/session.h"
#include "ir/evaluate_graph.h"
#include "measure/chain.h"
#include "measure/finite_differences.h"
#include "measure/graph_inputs.h"
#include "measure/reference_time.h"
#include "program/step_table.h"
#include "runtime/reference_backend.h"

namespace coda {
namespace {

constexpr double kBound = 1e-3;
constexpr double kNoise = 1e-3;        // gradients that are as small beside the sum cancel in fp32
constexpr double kMostSeconds = 0.04;  // of one evaluation of the programs; there are dozens

using Values = std::map<std::string, std::vector<double>>;

// All numbers in fp32: rounding would be larger than the differences. Operands that have scales
// stay in 8 bits; lift says that they have no gradient.
std::vector<Program> in_fp32(std::span<const Program> programs) {
  std::vector<Program> copies(programs.begin(), programs.end());
  for (Program& program : copies) {
    if (std::any_of(program.steps.begin(), program.steps.end(), program::has_scales)) continue;
    for (TensorDecl& decl : program.tensors) {
      if (is_floating(decl.dtype)) decl.dtype = DType::f32;
    }
    for (Step& step : program.steps) {
      if (auto* rounding = std::get_if<steps::AsStored>(&step.work)) rounding->dtype = DType::f32;
    }
  }
  return copies;
}

class Differences {
 public:
  Differences(const Graph& graph, const CompileRequest& request, const DimValues& sizes,
              Values inputs)
      : graph_(graph), request_(request), sizes_(sizes), inputs_(std::move(inputs)) {
    for (const SeededOutput& seed : request.seeds) roots_.push_back(seed.output.id);
  }

  double error_of(const std::string& input, const std::vector<float>& gradient,
                  std::mt19937_64& random) {
    const std::vector<double> exact(gradient.begin(), gradient.end());
    return measure::gradient_error(
        exact, kNoise, random,
        [&](const std::vector<double>& direction, double step) {
          return sum_at(input, direction, step);
        },
        kBound);
  }

 private:
  double sum_at(const std::string& input, const std::vector<double>& direction, double step) {
    const std::vector<double> before = inputs_.at(input);
    std::vector<double>& values = inputs_.at(input);
    for (size_t i = 0; i < values.size(); ++i) values[i] += step * direction[i];
    const std::vector<Matrix> outputs = evaluate(graph_, roots_, inputs_, sizes_);
    values = before;
    double sum = 0;
    for (size_t i = 0; i < roots_.size(); ++i) {
      const std::vector<double>& weights =
          inputs_.at(graph_.node(request_.seeds[i].cotangent.id).name);
      for (size_t k = 0; k < weights.size(); ++k) sum += weights[k] * outputs[i].data[k];
    }
    return sum;
  }

  const Graph& graph_;
  const CompileRequest& request_;
  const DimValues& sizes_;
  Values inputs_;
  std::vector<int> roots_;
};

void check_gradients(const Graph& graph, const CompileRequest& request, const DimValues& sizes,
                     Values inputs, std::mt19937_64& random, BackwardReport& report) {
  CompileOptions options;
  options.sizes = sizes;
  ReferenceBackend backend;
  Session session(compile(graph, request, options).plan, backend, sizes);
  const TensorMap bound = session.allocate();
  for (auto& [name, tensor] : bound) {
    if (graph.find_input(name) < 0) continue;
    if (!inputs.contains(name))
      inputs[name] = measure::random_values(static_cast<size_t>(tensor.size()), random);
    Tensor copy = tensor;
    // What is given is what fp32 holds, in both.
    std::vector<double>& values = inputs[name];
    for (double& x : values) x = static_cast<double>(static_cast<float>(x));
    if (tensor.dtype() == DType::i32) {
      copy.set(std::vector<int32_t>(values.begin(), values.end()));
    } else {
      copy.set(std::vector<float>(values.begin(), values.end()));
    }
  }
  // An upstream gradient that cancels is no tensor of the plan.
  for (const SeededOutput& seed : request.seeds) {
    const Node& cotangent = graph.node(seed.cotangent.id);
    const auto count = static_cast<size_t>(cotangent.shape.rows.evaluate(sizes) *
                                           cotangent.shape.cols.evaluate(sizes));
    if (!inputs.contains(cotangent.name))
      inputs[cotangent.name] = measure::random_values(count, random);
  }
  session.forward();
  session.backward();
  Differences differences(graph, request, sizes, std::move(inputs));
  for (const GradientRequest& wanted : request.gradients) {
    const std::string& input = graph.node(wanted.input.id).name;
    report.gradients.push_back(
        {wanted.name, differences.error_of(input, session.tensor(wanted.name).floats(), random),
         kBound});
  }
}

}  // namespace

bool BackwardReport::is_right() const {
  return std::all_of(gradients.begin(), gradients.end(),
                     [](const CheckedGradient& gradient) { return gradient.is_right(); });
}

std::string text(const BackwardReport& report) {
  if (!report.left_out.empty()) return "  not checked: " + report.left_out + "\n";
  std::string right;
  std::string wrong;
  for (const CheckedGradient& gradient : report.gradients) {
    std::string& list = gradient.is_right() ? right : wrong;
    list += (list.empty() ? "" : ", ") + gradient.name;
  }
  std::string lines;
  if (!right.empty()) lines += "  as finite differences have it: " + right + "\n";
  if (!wrong.empty()) lines += "  WRONG, finite differences are others: " + wrong + "\n";
  for (const std::string& name : report.without_gradient)
    lines += "  no gradient comes from " + name + "\n";
  for (const std::string& name : report.not_compared)
    lines += "  not compared: " + name + ", which is named after no input of the forward\n";
  return lines;
}

BackwardReport check_backward(std::span<const Program> programs, const DimValues& sizes,
                              uint64_t seed) {
  BackwardReport report;
  double seconds = 0;
  for (const Program& program : programs) seconds += measure::evaluation_seconds(program, sizes);
  if (seconds > kMostSeconds) {
    report.left_out = "finite differences take long at these sizes";
    return report;
  }
  const std::vector<Program> copies = in_fp32(programs);
  Graph graph;
  LiftedTensors tensors;
  CompileRequest request;
  try {
    measure::require_chain(copies);
    for (const Program& program : copies) lift(program, graph, tensors);
    reduce_partials(tensors);
    request = program_request(graph, tensors, true);
    require(!request.gradients.empty(), "no stored value depends on an input with a gradient");
    std::mt19937_64 random(seed);
    check_gradients(graph, request, sizes, measure::chain_inputs(copies, sizes, seed).values,
                    random, report);
  } catch (const Error& error) {
    report.left_out = error.what();
  }
  return report;
}

BackwardReport check_backward(const NamedGraph& named, const DimValues& sizes, uint64_t seed) {
  BackwardReport report;
  if (measure::evaluation_seconds(named, sizes) > kMostSeconds) {
    report.left_out = "finite differences take long at these sizes";
    return report;
  }
  try {
    NamedGraph copy = with_types(named, [](const std::string&, const Shape&, DType type) {
      return is_floating(type) ? DType::f32 : type;
    });
    measure::GraphValues inputs = measure::random_graph_inputs(copy, sizes, seed);
    const CompileRequest request = graph_request(copy, true);
    require(!request.gradients.empty(), "no output depends on an input with a gradient");
    std::mt19937_64 random(seed);
    check_gradients(copy.graph, request, sizes, std::move(inputs), random, report);
  } catch (const Error& error) {
    report.left_out = error.what();
  }
  return report;
}

}  // namespace coda
