// SPDX-License-Identifier: Apache-2.0
#include "coda/models.h"

#include <cmath>
#include <numbers>

#include "coda/error.h"
#include "models/counter_random.h"

namespace coda {

int64_t ModelGraph::parameter_count() const {
  int64_t count = 0;
  for (const ModelParameter& p : parameters) count += p.count();
  return count;
}

void initialize(const ModelParameter& parameter, uint64_t seed, std::span<float> values) {
  invariant(static_cast<int64_t>(values.size()) == parameter.count(), "values of a parameter");
  const uint64_t stream = stream_of(parameter.name);
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < values.size(); ++i) {
    double normal = 0;
    if (parameter.deviation != 0) {  // Box and Muller; 1 - uniform is never 0
      const double radius = std::sqrt(-2 * std::log(1 - random_uniform(seed, stream, 2 * i)));
      normal = radius * std::cos(2 * std::numbers::pi * random_uniform(seed, stream, 2 * i + 1));
    }
    values[i] = static_cast<float>(parameter.mean + parameter.deviation * normal);
  }
}

}  // namespace coda
