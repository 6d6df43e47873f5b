// SPDX-License-Identifier: Apache-2.0
// Samples perturbed evaluations only if the first bound is exceeded.
#include "program/judge.h"

#include <algorithm>
#include <vector>

#include "base/prediction.h"
#include "base/relative_error.h"

namespace coda::program {

Judge::Judge(Program program, DimValues sizes, TensorValues inputs, double single_precision)
    : program_(std::move(program)),
      sizes_(std::move(sizes)),
      inputs_(std::move(inputs)),
      single_precision_(single_precision),
      exact_(evaluate(program_, sizes_, inputs_)) {
  for (const auto& [name, rounded] : evaluate(program_, sizes_, inputs_, {.round_stored = true})) {
    std::vector<double>& exact = exact_.at(name);
    exact = as_stored_allows(exact, rounded);
    rounding_[name] = relative_error(rounded, exact);
  }
}

Judge::Verdict Judge::of(const std::string& tensor, std::span<const double> computed) {
  Verdict verdict{.error = relative_error(computed, exact_.at(tensor)),
                  .bound = rounding_.at(tensor) + single_precision_};
  if (verdict.is_right()) return verdict;
  if (!sampled_) sampled_ = sampled_bounds();
  verdict.bound = std::max(verdict.bound, sampled_->at(tensor) + single_precision_);
  return verdict;
}

std::map<std::string, double> Judge::sampled_bounds() const {
  constexpr uint64_t kSamples = 16;
  std::map<std::string, std::vector<double>> errors;
  for (uint64_t seed = 1; seed <= kSamples; ++seed) {
    const TensorValues sample =
        evaluate(program_, sizes_, inputs_, {.round_stored = true, .fp32_errors = seed});
    for (const auto& [name, values] : sample)
      errors[name].push_back(relative_error(values, exact_.at(name)));
  }
  std::map<std::string, double> bounds;
  for (const auto& [name, of_samples] : errors) bounds[name] = prediction_limit(of_samples);
  return bounds;
}

}  // namespace coda::program
