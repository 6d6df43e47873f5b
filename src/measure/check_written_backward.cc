// SPDX-License-Identifier: Apache-2.0
// A backward that an author has written, against finite differences of the forward. Both are
// evaluated in float64, so that errors are those of the formulas alone.
#include <algorithm>
#include <optional>

#include "coda/check.h"
#include "coda/error.h"
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
      : forward_(forward), sizes_(sizes), random_(seed) {
    measure::require_chain(forward);
    measure::require_chain(backward);
    constexpr double kEvaluations = 50;  // two for each direction, step and input
    measure::require_short(forward, sizes, kEvaluations);
    measure::require_short(backward, sizes, 1);
    of_forward_ = measure::tensors_of(forward);
    inputs_ = measure::chain_inputs(forward, sizes, seed);
    program::TensorValues known = inputs_;
    known.merge(measure::evaluate_chain(forward, sizes, inputs_));
    const measure::ChainTensors of_backward = measure::tensors_of(backward);
    for (const auto& [name, decl] : of_backward.inputs) {
      if (known.contains(name)) continue;
      const auto of = differentiated(name, of_forward_.stored);
      require(of.has_value(), "the backward reads '" + name +
                                  "', which the forward neither reads nor stores, nor is it "
                                  "named as the gradient of what the forward stores: grad_of_" +
                                  of_forward_.stored.begin()->first + ", or d" +
                                  of_forward_.stored.begin()->first);
      const PhysicalShape shape = physical_shape(decl, sizes);
      known[name] = upstream_[*of] =
          measure::random_values(static_cast<size_t>(shape.rows * shape.cols), random_);
    }
    require(!upstream_.empty(),
            "the backward reads no gradient of what the forward stores: grad_of_" +
                of_forward_.stored.begin()->first);
    results_ = measure::as_arrays(backward, sizes, measure::evaluate_chain(backward, sizes, known));
  }

  BackwardReport report() {
    BackwardReport report;
    std::string stored;
    for (const auto& [name, gradient] : results_) {
      stored += (stored.empty() ? "" : ", ") + name;
      const auto input = differentiated(name, of_forward_.inputs);
      if (!input) {
        report.not_compared.push_back(name);
        continue;
      }
      require(gradient.values.size() == inputs_.at(*input).size(),
              "'" + name + "' has the shape " + shape_text(gradient) + ", and '" + *input +
                  "' other elements");
      double error = 0;
      for (int i = 0; i < kDirections; ++i)
        error = std::max(error, measure::gradient_error(
                                    gradient.values, kGradientNoise, random_,
                                    [&](const std::vector<double>& direction, double step) {
                                      return sum_at(*input, direction, step);
                                    },
                                    kGradientBound));
      report.gradients.push_back({name, error, kGradientBound});
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
  // What the forward stores, each times its upstream gradient.
  double sum_at(const std::string& input, const std::vector<double>& direction, double step) {
    program::TensorValues moved = inputs_;
    std::vector<double>& values = moved.at(input);
    for (size_t i = 0; i < values.size(); ++i) values[i] += step * direction[i];
    const Arrays stored =
        measure::as_arrays(forward_, sizes_, measure::evaluate_chain(forward_, sizes_, moved));
    double sum = 0;
    for (const auto& [name, weights] : upstream_) {
      const std::vector<double>& of = stored.at(name).values;
      require(of.size() == weights.size(), "the gradient of '" + name +
                                               "' has not the shape of the forward's, which is " +
                                               shape_text(stored.at(name)));
      for (size_t i = 0; i < of.size(); ++i) sum += of[i] * weights[i];
    }
    return sum;
  }

  std::span<const Program> forward_;
  const DimValues& sizes_;
  std::mt19937_64 random_;
  measure::ChainTensors of_forward_;
  program::TensorValues inputs_;
  program::TensorValues upstream_;  // by the names of what they are the gradients of
  Arrays results_;
};

}  // namespace

BackwardReport check_written_backward(std::span<const Program> forward,
                                      std::span<const Program> backward, const DimValues& sizes,
                                      uint64_t seed) {
  return WrittenBackward(forward, backward, sizes, seed).report();
}

}  // namespace coda
