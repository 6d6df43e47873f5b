// SPDX-License-Identifier: Apache-2.0
// The programs of an update: squares of gradients, their norm, and an optimizer's formulas. The
// formulas are applied to the rows of all parameters, to one weight together with its 8-bit copies,
// or to one tensor in host memory.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "coda/compile.h"
#include "coda/optimizer.h"
#include "coda/program.h"
#include "coda/weights.h"

namespace coda {

// Sums of squares, in a fixed order: of each span of 64 in a row, of each row, of groups of rows
// (stored as a matrix), and of all groups of all processes in rank order. A process whose loss was
// not finite makes its sums infinite, so that all processes see it in the norm.
inline constexpr const char* kSquares = R"(
program gradient_squares {
  g = tile(gradient[R, C])
  row_partial(of_spans, sum(g * g))
})";
inline constexpr const char* kOfRows = R"(
program gradient_squares_of_rows {
  store(of_rows, combine_rows(sum(of_spans[R, C])))
})";
inline constexpr const char* kOfGroups = R"(
program gradient_squares_of_groups {
  row_partial(of_groups, sum(tile(of_rows[S, G]) / scalar(sound)))
})";

// A loss (or the norm below) that is infinite or NaN is not less than the limit; then `sound`
// becomes 0.
inline constexpr const char* kLossCheck = R"(
program loss_check {
  l = scalar(loss)
  store(sound, scalar(sound) * less(l * l, inf))
  store(losses, scalar(losses) + l)
})";

// clip: the largest norm; 0: no clipping.
std::string norm_text(double clip);

// Names of tensors in the programs of an update; states have their own names.
inline constexpr const char* kMaster = "master";
inline constexpr const char* kCopy = "copy";
inline constexpr const char* kGradient = "gradient";

// Whether a parameter has master weights: false if its bf16 copy is all that there is of it.
bool has_master_weights(const Optimizer& optimizer, bool has_copy);

// Updates all rows of a matrix [R, C]. Some rows have no weight decay. An optimizer with noise
// (rounding_noise.h) needs C = kNoiseColumns.
std::string update_of_rows(const Optimizer& optimizer, bool has_copy);

// Updates a tensor [R, C] in host memory. All but the copy is stored as fp32, rounded to its own
// type.
// Each product is rounded (as_stored) before it is added, so no backend contracts it into an FMA.
// The caller does not run the program if a gradient is not finite.
Program update_on_host(const Optimizer& optimizer, bool has_copy, bool decays);

// Whether one program updates the weight and makes the copy. It cannot for a copy with scales of
// blocks of 64 rows, because a tile finds the largest magnitude before it stores the codes and has
// no registers left for that. It cannot for a copy of some columns of the weight, because such a
// copy has other tiles. It does not for several processes, each of which updates only its own rows,
// while a copy needs all rows; nor for an optimizer with noise, whose rows have kNoiseColumns.
bool is_updated_apart(const ParameterCopy& copy, int processes, const Optimizer& optimizer);
// The parameters of the copies for which is_updated_apart is true.
std::set<std::string> updated_apart(const std::vector<ParameterCopy>& copies, int processes,
                                    const Optimizer& optimizer);

// Updates one weight and makes its copies.
Program update_with(const ParameterCopy& copy, const WeightTensor& weight,
                    const Optimizer& optimizer);

}  // namespace coda
