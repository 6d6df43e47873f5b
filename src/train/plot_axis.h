// SPDX-License-Identifier: Apache-2.0
// An axis of a plot with round ticks that cover a range.
#pragma once

#include <string>

namespace coda {

struct PlotAxis {
  double low = 0;   // the first tick
  double step = 1;  // between ticks
  int ticks = 2;    // at least 2

  double high() const { return low + step * (ticks - 1); }
  double tick(int index) const { return low + step * index; }
  // 0 at low, 1 at high.
  double share(double value) const { return (value - low) / (high() - low); }
  // "0.25", "20k": as many digits as neighbouring ticks need to differ.
  std::string label(double value) const;
};

// Ticks at multiples of 1, 2 or 5 times a power of ten, about `wanted` of them, around [least,
// greatest]. Both finite.
PlotAxis round_axis(double least, double greatest, int wanted);

}  // namespace coda
