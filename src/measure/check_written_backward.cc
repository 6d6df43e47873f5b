// SPDX-License-Identifier: Apache-2.0
// A backward that an author has written, against finite differences of the forward. Both are
// evaluated in float64, so that errors are those of the formulas alone.
#include <algorithm>
#include <cmath>
#include <optional>

#include "coda/check.h"
#include "coda/error.h"
#include "coda/lift.h"
#include "ir/evaluate_graph.h"
#include "measure/chain.h"
#include "measure/finite_differences.h"
#include "measure/reference_time.h"

namespace coda {
namespace {

constexpr double kGradientBound = 1e-5;
constexpr double kGradientNoise = 1e-9;
constexpr int kDirections = 3;

// The tensor that `name` is the gradient of, by the ways in which gradients are named.
std::optional<std::string> differentiated(const std::string& name,
                                          const std::map<std::string, TensorDecl>& tensors) {
  for (const std::string prefix : {"grad_of_", "grad_to_", "grad_", "d_", "d"}) {
    if (!name.starts_with(prefix)) continue;
    std::string rest = name.substr(prefix.size());
    if (tensors.contains(rest)) return rest;
  }
  return std::nullopt;
}

class WrittenBackward {
 public:
  WrittenBackward(std::span<const Program> forward, std::span<const Program> backward,
                  const DimValues& sizes, uint64_t seed)
      : forward_(forward), backward_(backward), sizes_(sizes), random_(seed) {
    measure::require_chain(forward);
    measure::require_chain(backward);
    of_forward_ = measure::tensors_of(forward);
    lift_forward();
    const measure::ChainInputs drawn = measure::chain_inputs(forward, sizes, seed);
    scales_ = measure::scaled_inputs(drawn.values, drawn.uses, drawn.decls);
    std::vector<double> numbers = measure::numbers_of(forward);
    for (const double number : measure::numbers_of(backward)) numbers.push_back(number);
    for (const auto& others : {measure::reaching_inputs, measure::meeting_inputs})
      for (measure::ScaledInputs& one : others(drawn.values, drawn.uses, drawn.decls, numbers))
        scales_.push_back(std::move(one));
    scales_.insert(scales_.begin(), {"", drawn.values});
    const auto evaluations = 6 * static_cast<double>(kDirections + scales_.size());
    measure::require_short(forward, sizes, evaluations * static_cast<double>(drawn.values.size()));
    measure::require_short(backward, sizes, static_cast<double>(scales_.size()));
    const auto known = measure::evaluate_chain(forward, sizes, drawn.values);
    for (const auto& [name, decl] : measure::tensors_of(backward).inputs) {
      if (known.contains(name) || drawn.values.contains(name)) continue;
      const auto of = differentiated(name, of_forward_.stored);
      require(of.has_value(),
              "the backward reads '" + name +
                  "', but the forward neither reads nor stores it, and its name is not that of the "
                  "gradient of a stored tensor, such as grad_of_" +
                  of_forward_.stored.begin()->first + " or d" + of_forward_.stored.begin()->first +
                  (decl.shape.is_scalar() ? " (a program reads a size N as size(N))" : ""));
      const PhysicalShape shape = physical_shape(decl, sizes);
      given_[name] = upstream_[*of] =
          measure::random_values(static_cast<size_t>(shape.rows * shape.cols), random_);
    }
    require(!upstream_.empty(),
            "the backward reads no gradient of what the forward stores: grad_of_" +
                of_forward_.stored.begin()->first);
  }

  BackwardReport report() {
    BackwardReport report;
    for (const measure::ScaledInputs& scale : scales_) compare(scale, report);
    std::string stored;
    for (const auto& [name, decl] : measure::tensors_of(backward_).stored) {
      stored += (stored.empty() ? "" : ", ") + name;
      const bool is_compared =
          std::any_of(report.gradients.begin(), report.gradients.end(),
                      [&](const CheckedGradient& gradient) { return gradient.name == name; });
      if (!is_compared) report.not_compared.push_back(name);
    }
    require(!report.gradients.empty(),
            "the backward stores " + stored +
                ", and no gradient of an input of the forward: grad_to_" +
                of_forward_.inputs.begin()->first);
    for (const auto& [name, decl] : of_forward_.stored) {
      if (!upstream_.contains(name)) report.without_gradient.push_back(name);
    }
    return report;
  }

 private:
  // Updates the largest error of each gradient with the errors at one scale.
  void compare(const measure::ScaledInputs& scale, BackwardReport& report) {
    inputs_ = &scale.values;
    program::TensorValues known = scale.values;
    known.merge(measure::evaluate_chain(forward_, sizes_, scale.values));
    program::TensorValues all = given_;
    all.merge(program::TensorValues(known));
    read_reductions(known, all);
    const program::TensorValues results = measure::evaluate_chain(backward_, sizes_, all);
    const bool is_usual = scale.words.empty();
    for (const auto& [name, gradient] : measure::as_arrays(backward_, sizes_, results)) {
      // At other scales, skip a gradient that overflows.
      if (!is_usual && !measure::is_finite({{name, gradient.values}})) continue;
      auto of = differentiated(name, of_forward_.inputs);
      if (!of) of = differentiated(name, intermediates_);
      if (!of) continue;
      require(gradient.values.size() == known.at(*of).size(),
              "'" + name + "' has the shape " + shape_text(gradient) + ", but '" + *of +
                  "' has another number of elements");
      double error = 0;
      for (int i = 0; i < (is_usual ? kDirections : 1); ++i)
        error = std::max(error, measure::gradient_error(
                                    gradient.values, kGradientNoise, random_,
                                    [&](const std::vector<double>& direction, double step) {
                                      return sum_at(*of, direction, step);
                                    },
                                    kGradientBound));
      const auto known_gradient =
          std::find_if(report.gradients.begin(), report.gradients.end(),
                       [&](const CheckedGradient& one) { return one.name == name; });
      if (known_gradient == report.gradients.end()) {
        report.gradients.push_back({name, error, kGradientBound});
      } else if (std::isfinite(error)) {
        known_gradient->error = std::max(known_gradient->error, error);
      }
    }
  }

  // The backward may read a partial of the forward as what it is reduced to.
  void read_reductions(const program::TensorValues& known, program::TensorValues& all) {
    const Arrays reductions = measure::as_arrays(forward_, sizes_, known);
    for (const auto& [name, decl] : measure::tensors_of(backward_).inputs) {
      const auto stored = of_forward_.stored.find(name);
      if (stored != of_forward_.stored.end() && stored->second.kind != decl.kind)
        all[name] = reductions.at(name).values;
    }
  }

  // Lifts the forward to a graph, in which a stored value can be perturbed wherever it is used.
  // Values cannot be perturbed if the forward cannot be lifted, or if an output is not a value of
  // the graph.
  void lift_forward() {
    try {
      for (const Program& program : forward_) lift(program, graph_, lifted_);
      reduce_partials(lifted_);
    } catch (const Error&) {
      return;
    }
    for (const auto& [name, decl] : of_forward_.stored) {
      const auto found = lifted_.values.find(name);
      if (found != lifted_.values.end() && decl.kind == TensorKind::dense &&
          graph_.node(found->second.id).op != Op::input)
        intermediates_[name] = decl;
    }
  }

  // The stored tensors after the value stored as `name` is perturbed.
  Arrays stored_at(const std::string& name, const std::vector<double>& direction, double step) {
    const int moved = lifted_.values.at(name).id;
    std::vector<std::string> names;
    std::vector<int> roots;
    for (const auto& [of, weights] : upstream_) {
      require(lifted_.values.contains(of), "the gradient of '" + of +
                                               "' is given, but a program combines this partial: "
                                               "give the gradient of the combined tensor");
      names.push_back(of);
      roots.push_back(lifted_.values.at(of).id);
    }
    const std::vector<Matrix> results =
        evaluate(graph_, roots, *inputs_, sizes_,
                 [&](int id, const std::vector<const Matrix*>&, std::vector<Matrix>& all) {
                   if (id != moved) return;
                   for (size_t i = 0; i < direction.size(); ++i)
                     all[0].data[i] += step * direction[i];
                 });
    Arrays arrays;
    for (size_t i = 0; i < names.size(); ++i)
      arrays[names[i]] = {{std::ssize(results[i].data)}, results[i].data};
    return arrays;
  }

  // Perturbs `name` and returns the sum of the stored tensors, each times its upstream gradient.
  double sum_at(const std::string& name, const std::vector<double>& direction, double step) {
    Arrays arrays;
    if (inputs_->contains(name)) {
      program::TensorValues moved = *inputs_;
      std::vector<double>& values = moved.at(name);
      for (size_t i = 0; i < values.size(); ++i) values[i] += step * direction[i];
      arrays =
          measure::as_arrays(forward_, sizes_, measure::evaluate_chain(forward_, sizes_, moved));
    } else {
      arrays = stored_at(name, direction, step);
    }
    double sum = 0;
    for (const auto& [of, weights] : upstream_) {
      const std::vector<double>& values = arrays.at(of).values;
      require(values.size() == weights.size(),
              "the gradient of '" + of +
                  "' does not have the shape of the tensor in the forward, " +
                  shape_text(arrays.at(of)));
      for (size_t i = 0; i < values.size(); ++i) sum += values[i] * weights[i];
    }
    return sum;
  }

  std::span<const Program> forward_;
  std::span<const Program> backward_;
  const DimValues& sizes_;
  std::mt19937_64 random_;
  measure::ChainTensors of_forward_;
  Graph graph_;  // the forward as a graph, if it can be lifted
  LiftedTensors lifted_;
  std::map<std::string, TensorDecl> intermediates_;  // stored values that can be perturbed
  std::vector<measure::ScaledInputs> scales_;
  const program::TensorValues* inputs_ = nullptr;  // of the current scale
  program::TensorValues given_;                    // upstream gradients, by their own names
  // Upstream gradients, by the names of the tensors that they are gradients of.
  program::TensorValues upstream_;
};

}  // namespace

BackwardReport check_written_backward(std::span<const Program> forward,
                                      std::span<const Program> backward, const DimValues& sizes,
                                      uint64_t seed) {
  return WrittenBackward(forward, backward, sizes, seed).report();
}

}  // namespace coda
