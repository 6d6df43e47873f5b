// SPDX-License-Identifier: Apache-2.0
// Whether what a backend computed of a program is right: its errors against float64, and what a
// right computation's may be.
//
// A right computation rounds where the program says so and errs elsewhere as fp32 does. So its
// error is that of the reference evaluated with the same roundings, but for two things. fp32's own
// errors are small beside those (`single_precision`). But some move a value over a tie, and then it
// is rounded to the other side, a whole unit of a 16-bit type away. Of what is stored itself that
// changes no error's size, as both sides of a tie are half a unit away; of a sum of rounded values
// it does, to either side. What that does is a matter of chance, so it is sampled: the reference is
// evaluated several times more with random errors at each step (EvaluateOptions::fp32_errors), and
// the bound is the prediction limit of the errors that come out. As results seldom need that, it is
// done when one errs more than the first bound.
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

  // What the program stores in float64; where a type cannot hold that, what its rounding makes of
  // it.
  const TensorValues& exact() const { return exact_; }

  // relative_error of what a tensor should be.
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
  std::map<std::string, double> rounding_;  // the reference's error with the program's roundings
  std::optional<std::map<std::string, double>> sampled_;
};

}  // namespace coda::program
