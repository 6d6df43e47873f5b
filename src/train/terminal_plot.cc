// SPDX-License-Identifier: Apache-2.0
// Draws the plot in the terminal: '*' in each column for the line, 'o' for held-out losses, ticks
// in the margin. Every character is one column wide.
#include <algorithm>
#include <cmath>

#include "coda/loss_curve.h"
#include "train/plot_data.h"

namespace coda {
namespace {

// At most `columns` characters, without cutting a UTF-8 character.
std::string fitted(const std::string& text, size_t columns) {
  std::string result;
  size_t used = 0;
  for (const char c : text) {
    const bool starts_character = (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    if (starts_character && used++ == columns) break;
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result;
}

// Interpolates the line at a step.
double loss_at(const std::vector<LossPoint>& line, double step) {
  const auto next = std::find_if(line.begin() + 1, line.end(), [&](const LossPoint& point) {
    return static_cast<double>(point.step) >= step;
  });
  if (next == line.end()) return line.back().loss;
  const LossPoint& from = *(next - 1);
  const double share = (step - static_cast<double>(from.step)) /
                       static_cast<double>(std::max<int64_t>(next->step - from.step, 1));
  return from.loss + (next->loss - from.loss) * share;
}

}  // namespace

std::string terminal_plot(const LossCurve& curve, int columns, int rows) {
  rows = std::max(rows, 2);
  const auto width = static_cast<size_t>(std::max(columns, 24));
  const PlotData data = plot_data(curve, 2, std::max(2, rows / 2));
  if (data.empty()) return fitted(curve.title + ": no finite losses to draw", width) + "\n";
  const PlotAxis& x = data.x;
  const PlotAxis& y = data.y;
  size_t margin = 0;
  for (int i = 0; i < y.ticks; ++i) margin = std::max(margin, y.label(y.tick(i)).size());
  const size_t across = width - margin - 2;
  std::vector<std::string> grid(static_cast<size_t>(rows), std::string(across, ' '));
  std::vector<std::string> labels(grid.size());
  const auto row_of = [&](double loss) {
    return static_cast<size_t>(std::lround((1 - y.share(loss)) * (rows - 1)));
  };
  const auto put = [&](double step, double loss, char mark) {
    grid[row_of(loss)]
        [static_cast<size_t>(std::lround(x.share(step) * static_cast<double>(across - 1)))] = mark;
  };
  for (size_t column = 0; column < across && !data.line.empty(); ++column) {
    const double step =
        x.low + (x.high() - x.low) * static_cast<double>(column) / static_cast<double>(across - 1);
    const bool is_between = step >= static_cast<double>(data.line.front().step) &&
                            step <= static_cast<double>(data.line.back().step);
    if (is_between) put(step, loss_at(data.line, step), '*');
  }
  for (const LossPoint& point : data.line) put(static_cast<double>(point.step), point.loss, '*');
  for (const LossPoint& point : data.marks) put(static_cast<double>(point.step), point.loss, 'o');
  for (int i = 0; i < y.ticks; ++i) labels[row_of(y.tick(i))] = y.label(y.tick(i));

  const std::string held_out = data.marks.empty() ? "" : ", held-out: o";
  std::string text =
      fitted((curve.title.empty() ? "" : curve.title + ": ") + curve.y_title + held_out, width) +
      "\n";
  for (size_t row = 0; row < grid.size(); ++row) {
    const std::string& label = labels[row];
    text += std::string(margin - label.size(), ' ') + label + (label.empty() ? " │" : " ┤") +
            grid[row].substr(0, grid[row].find_last_not_of(' ') + 1) + "\n";
  }
  // Two lines: the axis, then its first label, its title and its last label.
  const std::string first = x.label(x.low);
  const std::string last = x.label(x.high());
  const size_t room = across - std::min(across, first.size() + last.size() + 2);
  const std::string title = fitted(curve.x_title, room);
  const size_t blanks = across - std::min(across, first.size() + last.size() + title.size());
  text += std::string(margin, ' ') + " └";
  for (size_t i = 0; i < across; ++i) text += "─";
  return text + "\n" + std::string(margin + 2, ' ') + first + std::string(blanks / 2, ' ') + title +
         std::string(blanks - blanks / 2, ' ') + last + "\n";
}

}  // namespace coda
