// SPDX-License-Identifier: Apache-2.0
// The terminal's picture: the line in Braille characters, which are 2 dots wide and 4 high,
// held-out losses as 'o', ticks in the margin. Every character is one column wide.
#include <cmath>
#include <string_view>

#include "coda/loss_curve.h"
#include "train/plot_data.h"

namespace coda {
namespace {

// A grid of cells, each 8 dots or one mark.
class Canvas {
 public:
  Canvas(int columns, int rows)
      : columns_(columns),
        rows_(rows),
        cells_(static_cast<size_t>(columns) * static_cast<size_t>(rows)) {}

  int dots_across() const { return 2 * columns_; }
  int dots_down() const { return 4 * rows_; }

  void dot(int x, int y) {
    if (x < 0 || x >= dots_across() || y < 0 || y >= dots_down()) return;
    // Bits of U+2800 + n: the upper three rows are 1 2 4 (left) and 8 16 32 (right), the lowest is
    // 64, 128.
    constexpr uint8_t kBits[4][2] = {{1, 8}, {2, 16}, {4, 32}, {64, 128}};
    cell(x / 2, y / 4).dots |= kBits[y % 4][x % 2];
  }

  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      const double share = static_cast<double>(i) / steps;
      dot(static_cast<int>(std::lround(x0 + (x1 - x0) * share)),
          static_cast<int>(std::lround(y0 + (y1 - y0) * share)));
    }
  }

  void mark(int x, int y) { cell(x / 2, y / 4).is_marked = true; }

  std::string row(int index) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const Cell& c = cells_[place(column, index)];
      if (c.is_marked) {
        text += 'o';
      } else if (c.dots == 0) {
        text += ' ';
      } else {  // U+2800 + dots in UTF-8
        text += '\xe2';
        text += static_cast<char>(0xa0 | (c.dots >> 6));
        text += static_cast<char>(0x80 | (c.dots & 0x3f));
      }
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

 private:
  struct Cell {
    uint8_t dots = 0;
    bool is_marked = false;
  };
  size_t place(int column, int row) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }
  Cell& cell(int column, int row) { return cells_[place(column, row)]; }

  int columns_;
  int rows_;
  std::vector<Cell> cells_;
};

std::string repeated(std::string_view text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += text;
  return result;
}

// At most `columns` characters, not cutting one in two.
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

}  // namespace

std::string terminal_plot(const LossCurve& curve, int columns, int rows) {
  rows = std::max(rows, 2);
  columns = std::max(columns, 24);
  const auto width = static_cast<size_t>(columns);
  PlotData data = plot_data(curve, std::max(2, columns / 16), std::max(2, rows / 2));
  if (data.empty()) return fitted(curve.title + ": no finite losses to draw", width) + "\n";
  const PlotAxis& y = data.y;
  size_t margin = 0;
  for (int i = 0; i < y.ticks; ++i) margin = std::max(margin, y.label(y.tick(i)).size());
  const int plot_columns = columns - static_cast<int>(margin) - 2;
  Canvas canvas(plot_columns, rows);
  const auto place_x = [&](const LossPoint& point) {
    return static_cast<int>(
        std::lround(data.x.share(static_cast<double>(point.step)) * (canvas.dots_across() - 1)));
  };
  const auto place_y = [&](double loss) {
    return static_cast<int>(std::lround((1 - y.share(loss)) * (canvas.dots_down() - 1)));
  };
  for (size_t i = 0; i < data.line.size(); ++i) {
    const LossPoint& from = data.line[i == 0 ? 0 : i - 1];
    const LossPoint& to = data.line[i];
    canvas.line(place_x(from), place_y(from.loss), place_x(to), place_y(to.loss));
  }
  for (const LossPoint& point : data.marks) canvas.mark(place_x(point), place_y(point.loss));

  std::vector<std::string> labels(static_cast<size_t>(rows));
  for (int i = 0; i < y.ticks; ++i) {
    labels[static_cast<size_t>(place_y(y.tick(i)) / 4)] = y.label(y.tick(i));
  }
  const std::string marks_title = data.marks.empty() ? "" : ", held-out: o";
  std::string text =
      fitted((curve.title.empty() ? "" : curve.title + ": ") + curve.y_title + marks_title, width) +
      "\n";
  for (int row = 0; row < rows; ++row) {
    const std::string& label = labels[static_cast<size_t>(row)];
    text += std::string(margin - label.size(), ' ') + label + (label.empty() ? " │" : " ┤") +
            canvas.row(row) + "\n";
  }

  // Below: the axis, the ticks under their places, the title where room is left.
  std::string below(width, ' ');
  std::vector<bool> has_tick(static_cast<size_t>(plot_columns));
  size_t free_from = 0;
  for (int i = 0; i < data.x.ticks; ++i) {
    const double share = data.x.share(data.x.tick(i));
    const auto place = static_cast<size_t>(std::lround(share * (plot_columns - 1)));
    const std::string label = data.x.label(data.x.tick(i));
    size_t start = margin + 2 + place;
    start -= std::min(start, label.size() / 2);
    start = std::min(start, width - std::min(width, label.size()));
    if (i > 0 && start < free_from + 1) continue;
    below.replace(start, label.size(), label);
    has_tick[place] = true;
    free_from = start + label.size();
  }
  text += std::string(margin, ' ') + " └";
  for (const bool tick : has_tick) text += tick ? "┬" : "─";
  text += "\n" + below.substr(0, below.find_last_not_of(' ') + 1) + "\n";
  const std::string x_title = fitted(curve.x_title, width);
  return text + repeated(" ", (width - std::min(width, x_title.size())) / 2) + x_title + "\n";
}

}  // namespace coda
