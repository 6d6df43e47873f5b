// SPDX-License-Identifier: Apache-2.0
// Plots the losses of a run: as text for the terminal, and as a self-contained SVG. Both draw a
// smoothed line; the SVG also draws the single steps faintly. Losses that are not finite are left
// out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "coda/api.h"

namespace CODA_API coda {

struct LossPoint {
  int64_t step = 0;
  double loss = 0;

  friend bool operator==(const LossPoint&, const LossPoint&) = default;
};

struct LossCurve {
  std::string title;
  std::string x_title = "step";
  std::string y_title = "loss (nats a token)";
  std::vector<LossPoint> train;     // steps ascend
  std::vector<LossPoint> held_out;  // drawn as single marks; may be empty
};

// Lines of at most `columns` columns, each ended by a newline: the title, `rows` rows of plot, the
// axis. A single line saying so if there is nothing to draw.
std::string terminal_plot(const LossCurve& curve, int columns = 80, int rows = 16);

std::string svg_plot(const LossCurve& curve);

// Writes svg_plot() atomically.
void write_svg_plot(const std::filesystem::path& file, const LossCurve& curve);

// Moving averages over about a fortieth of all points. The window shrinks towards both ends, so
// that the first and the last value stay.
std::vector<LossPoint> smoothed(const std::vector<LossPoint>& points);

}  // namespace CODA_API coda
