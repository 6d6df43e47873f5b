// SPDX-License-Identifier: Apache-2.0
// The relative error of computed values as one number, which is compared with a bound.
// Invariant: if a value is NaN or infinite and the reference is not the same, the error is
// infinite, so no bound holds.
#pragma once

#include <span>
#include <vector>

namespace coda {

// ‖computed - reference‖ / ‖reference‖; of a reference that is 0 the size itself. Elements that are
// NaN in both, or the same infinity, agree and count for nothing. Infinite where one is NaN or
// infinite and the other is not the same, and where there are not as many of both.
double relative_error(std::span<const double> computed, std::span<const double> reference);

// The reference that a storage type allows: `exact`, but `rounded` to the type where that is no
// longer finite. Else one number that the type cannot hold would make any error allowed.
std::vector<double> as_stored_allows(std::span<const double> exact,
                                     std::span<const double> rounded);

}  // namespace coda
