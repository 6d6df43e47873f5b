// SPDX-License-Identifier: Apache-2.0
// The learning rate of each step: a linear warm-up to the peak, then half a cosine down to the
// floor.
#pragma once

#include <cstdint>

#include "coda/api.h"

namespace CODA_API coda {

struct LearningSchedule {
  double peak = 1e-3;
  double floor = 1e-4;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
};

// Throws Error unless 0 <= floor <= peak, both finite, and 0 <= warmup_steps <= total_steps.
void check_schedule(const LearningSchedule& schedule);

// The rate of step 0, 1, ...: peak * (step + 1) / warmup_steps during warm-up, then the cosine from
// peak; floor from total_steps on.
double learning_rate(const LearningSchedule& schedule, int64_t step);

}  // namespace CODA_API coda
