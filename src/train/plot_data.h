// SPDX-License-Identifier: Apache-2.0
// The drawable points of a loss curve, with axes that contain them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "coda/loss_curve.h"
#include "train/plot_axis.h"

namespace coda {

struct PlotData {
  std::vector<LossPoint> raw;
  std::vector<LossPoint> line;
  std::vector<LossPoint> marks;
  PlotAxis x;
  PlotAxis y;

  bool empty() const { return raw.empty() && marks.empty(); }
};

inline PlotData plot_data(const LossCurve& curve, int x_ticks, int y_ticks) {
  PlotData data;
  // A loss above 1e30 is treated as infinite.
  const auto is_drawable = [](const LossPoint& point) { return std::abs(point.loss) < 1e30; };
  std::copy_if(curve.train.begin(), curve.train.end(), std::back_inserter(data.raw), is_drawable);
  std::copy_if(curve.held_out.begin(), curve.held_out.end(), std::back_inserter(data.marks),
               is_drawable);
  data.line = smoothed(data.raw);
  if (data.empty()) return data;
  double first = std::numeric_limits<double>::infinity();
  double last = -first;
  double least = first;
  double greatest = -first;
  for (const auto* points : {&data.raw, &data.marks}) {
    for (const LossPoint& point : *points) {
      first = std::min(first, static_cast<double>(point.step));
      last = std::max(last, static_cast<double>(point.step));
      least = std::min(least, point.loss);
      greatest = std::max(greatest, point.loss);
    }
  }
  data.x = round_axis(first, std::max(last, first + 1), x_ticks);
  data.y = round_axis(least, greatest, y_ticks);
  return data;
}

}  // namespace coda
