// SPDX-License-Identifier: Apache-2.0
// Decides whether a backend's results are correct, by their errors against float64 and a bound for
// the errors of a correct computation.
//
// A correct computation rounds where the program says so, and otherwise has the errors of fp32. So
// its error is that of the reference with the same roundings, except for two effects. The errors of
// fp32 itself are small in comparison (`single_precision`). But some of them move a value across a
// rounding boundary, so that it is rounded to the other side, a whole unit of a 16-bit type away.
// For stored values this does not change the size of the error, because both sides of a tie are
// half a unit away. For a sum of rounded values it does. This effect is random and is therefore
// sampled: the reference is evaluated several times with random errors at each step
// (EvaluateOptions::fp32_errors), and the bound is the prediction limit of the resulting errors.
// Sampling is done only if a result exceeds the first bound.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "program/evaluate.h"

namespace coda::program {

class Judge {
 public:
  // Keeps what it is given. Throws Error as evaluate does.
  Judge(Program program, DimValues sizes, TensorValues inputs, double single_precision = 1e-5);

  // What the program stores, in float64; values outside a type's range as they are rounded.
  const TensorValues& exact() const { return exact_; }

  // The relative_error against the expected tensor.
  struct Verdict {
    double error = 0;
    double bound = 0;
    bool is_right() const { return error <= bound; }
  };
  Verdict of(const std::string& tensor, std::span<const double> computed);

 private:
  std::map<std::string, double> sampled_bounds() const;

  Program program_;
  DimValues sizes_;
  TensorValues inputs_;
  double single_precision_;
  TensorValues exact_;
  std::map<std::string, double> rounding_;  // error of the reference with the program's roundings
  std::optional<std::map<std::string, double>> sampled_;
};

}  // namespace coda::program
