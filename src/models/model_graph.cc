// SPDX-License-Identifier: Apache-2.0
#include "coda/models.h"

#include <algorithm>

#include "coda/error.h"
#include "models/counter_random.h"
#include "models/normal_numbers.h"

namespace coda {

int64_t ModelGraph::parameter_count() const {
  int64_t count = 0;
  for (const ModelParameter& p : parameters) count += p.count();
  return count;
}

void initialize(const ModelParameter& parameter, uint64_t seed, std::span<float> values) {
  invariant(static_cast<int64_t>(values.size()) == parameter.count(), "values of a parameter");
  const auto mean = static_cast<float>(parameter.mean);
  if (parameter.deviation == 0) {
    std::fill(values.begin(), values.end(), mean);
  } else {
    fill_normal(seed, stream_of(parameter.name), mean, static_cast<float>(parameter.deviation),
                values);
  }
  if (parameter.zero_row) {
    const auto cols = static_cast<size_t>(parameter.cols());
    std::ranges::fill(values.subspan(static_cast<size_t>(*parameter.zero_row) * cols, cols), 0.0F);
  }
}

}  // namespace coda
