// SPDX-License-Identifier: Apache-2.0
// Linear warm-up, then half a cosine.
#include "coda/schedule.h"

#include <cmath>
#include <numbers>
#include <string>

#include "coda/error.h"

namespace coda {

void check_schedule(const LearningSchedule& schedule) {
  require(std::isfinite(schedule.peak) && schedule.floor >= 0 && schedule.floor <= schedule.peak,
          "learning rate: the floor (" + std::to_string(schedule.floor) +
              ") must be at least 0 and at most the peak (" + std::to_string(schedule.peak) + ")");
  require(schedule.warmup_steps >= 0 && schedule.warmup_steps <= schedule.total_steps,
          "learning rate: " + std::to_string(schedule.warmup_steps) +
              " steps of warm-up do not fit into a run of " + std::to_string(schedule.total_steps) +
              " steps (choose fewer, or a longer run)");
}

double learning_rate(const LearningSchedule& schedule, int64_t step) {
  if (step < schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step + 1) /
           static_cast<double>(schedule.warmup_steps);
  }
  if (step >= schedule.total_steps) return schedule.floor;
  const double progress = static_cast<double>(step - schedule.warmup_steps) /
                          static_cast<double>(schedule.total_steps - schedule.warmup_steps);
  return schedule.floor +
         (schedule.peak - schedule.floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace coda
