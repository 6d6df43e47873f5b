// SPDX-License-Identifier: Apache-2.0
// Predicts how large a further number of a sample may be, so that tests use measured bounds.
#pragma once

#include <span>

namespace coda {

// What one more number drawn as those of the sample were exceeds once in 10,000 times, if they are
// normal: Student's prediction interval, mean + t * deviation * sqrt(1 + 1 / n) with n - 1 degrees
// of freedom. At least 4 numbers: t by Cornish and Fisher's series (6.96 of 7 degrees,
// exactly 7.06).
double prediction_limit(std::span<const double> sample);

}  // namespace coda
