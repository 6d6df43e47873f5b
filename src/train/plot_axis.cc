// SPDX-License-Identifier: Apache-2.0
// Chooses round ticks.
#include "train/plot_axis.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace coda {

PlotAxis round_axis(double least, double greatest, int wanted) {
  // A range of one value gets some room around it.
  const double size = std::max(std::abs(least), std::abs(greatest));
  const double range = std::max({greatest - least, size * 1e-6, 1e-9});
  const double rough = range / std::max(1, wanted - 1);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  const double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
  // A small tolerance, so that rounding does not move a bound that is a tick beyond it.
  PlotAxis axis;
  axis.step = step;
  axis.low = std::floor(least / step + 1e-9) * step;
  const double last = std::ceil(greatest / step - 1e-9) * step;
  axis.ticks = std::max(2, static_cast<int>(std::lround((last - axis.low) / step)) + 1);
  return axis;
}

std::string PlotAxis::label(double value) const {
  double unit = 1;
  const char* suffix = "";
  if (step >= 1e6) {
    unit = 1e6;
    suffix = "M";
  } else if (step >= 1e3) {
    unit = 1e3;
    suffix = "k";
  }
  const double digits = -std::floor(std::log10(step / unit) + 1e-9);
  const int places = std::clamp(static_cast<int>(digits), 0, 9);
  char text[48];
  // Adding 0 turns -0 into 0.
  std::snprintf(text, sizeof text, "%.*f%s", places, std::round(value / step) * step / unit + 0.0,
                suffix);
  return value == 0 ? "0" : text;
}

}  // namespace coda
