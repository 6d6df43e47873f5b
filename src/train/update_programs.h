// SPDX-License-Identifier: Apache-2.0
// The programs of a step's update: squares of gradients, their norm, and an optimizer's formulas
// over the rows of all parameters, over one weight with its copies in 8 bits, and over a tensor of
// the host.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "coda/compile.h"
#include "coda/optimizer.h"
#include "coda/program.h"
#include "coda/weights.h"

namespace coda {

// Sums of squares: of a row by its spans of 64, then of groups of rows, whose sums are a matrix
// again, then of all groups, those of all processes in their order. So the order is fixed. A
// process whose loss was not finite makes its sums infinite, so all processes see it in the norm.
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

// A loss, or a norm below, that is infinite or no number is not less, and `sound` becomes 0.
inline constexpr const char* kLossCheck = R"(
program loss_check {
  l = scalar(loss)
  store(sound, scalar(sound) * less(l * l, inf))
  store(losses, scalar(losses) + l)
})";

// clip: the largest norm; 0: any.
std::string norm_text(double clip);

// What the frame of an update calls its tensors; a state has its own name.
inline constexpr const char* kMaster = "master";
inline constexpr const char* kCopy = "copy";
inline constexpr const char* kGradient = "gradient";

// Of all rows of a matrix [R, C]; of some the weights do not decay.
std::string update_of_rows(const Optimizer& optimizer, bool has_copy);

// Of a tensor [R, C] in the host's memory, whose states are fp32 and rounded to their types. Each
// product is rounded by itself (as_stored), so no backend contracts it into a sum. Nobody runs it
// for gradients that are not finite.
Program update_on_host(const Optimizer& optimizer, bool has_copy, bool decays);

// Whether the update of the weight can leave the copy too. Blocks of 64 rows whose largest
// magnitude a tile finds before it stores their codes leave no registers for it, and a copy of some
// columns of the weight has other tiles.
bool fits_update(const ParameterCopy& copy);
// The parameters of those that do, of one process: of several each updates rows of its own, and a
// copy wants all of them.
std::set<std::string> updated_apart(const std::vector<ParameterCopy>& copies, int processes);

// The update of one weight, and its copies.
Program update_with(const ParameterCopy& copy, const WeightTensor& weight,
                    const Optimizer& optimizer);

}  // namespace coda
