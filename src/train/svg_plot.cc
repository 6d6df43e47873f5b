// SPDX-License-Identifier: Apache-2.0
// Draws the SVG: grid, titled axes, single steps as faint dots, the smoothed line, held-out losses
// as circles, a legend. It needs no scripts, fonts or other files, and has a white background, so
// that it is readable on dark pages.
#include <cstdio>

#include "base/atomic_file.h"
#include "coda/loss_curve.h"
#include "train/plot_data.h"

namespace coda {
namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 76, kRight = 736, kTop = 52, kBottom = 380;  // the plot's frame
constexpr size_t kMostDots = 2000;                                    // keeps the file small

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '"') {
      result += "&quot;";
    } else {
      result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return result;
}

// Coordinates have two decimals; all values are finite and inside the picture.
std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string label(double x, double y, const char* attributes, const std::string& text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" " + attributes + ">" +
         escaped(text) + "</text>\n";
}

std::string grid(const PlotData& data) {
  std::string svg = "<g stroke=\"#e3e6ea\">\n";
  std::string labels;
  for (int i = 0; i < data.x.ticks; ++i) {
    const double x = kLeft + data.x.share(data.x.tick(i)) * (kRight - kLeft);
    svg += "<path d=\"M" + number(x) + " " + number(kTop) + "V" + number(kBottom) + "\"/>\n";
    labels += label(x, kBottom + 20, "text-anchor=\"middle\"", data.x.label(data.x.tick(i)));
  }
  for (int i = 0; i < data.y.ticks; ++i) {
    const double y = kBottom - data.y.share(data.y.tick(i)) * (kBottom - kTop);
    svg += "<path d=\"M" + number(kLeft) + " " + number(y) + "H" + number(kRight) + "\"/>\n";
    labels += label(kLeft - 8, y + 4, "text-anchor=\"end\"", data.y.label(data.y.tick(i)));
  }
  return svg + "</g>\n" + labels + "<path d=\"M" + number(kLeft) + " " + number(kTop) + "V" +
         number(kBottom) + "H" + number(kRight) + "\" fill=\"none\" stroke=\"#5b6470\"/>\n";
}

std::string legend(const PlotData& data) {
  double x = kRight - (data.marks.empty() ? 60 : 150);
  const double y = kTop - 14;
  std::string svg = "<path d=\"M" + number(x) + " " + number(y - 4) +
                    "h18\" stroke=\"#1f5fbf\" stroke-width=\"2\"/>\n" +
                    label(x + 24, y, "", "training");
  if (!data.marks.empty()) {
    x += 86;
    svg += "<circle cx=\"" + number(x + 5) + "\" cy=\"" + number(y - 4) +
           "\" r=\"3.5\" fill=\"#fff\" stroke=\"#d1491f\" stroke-width=\"2\"/>\n" +
           label(x + 14, y, "", "held out");
  }
  return svg;
}

}  // namespace

std::string svg_plot(const LossCurve& curve) {
  const PlotData data = plot_data(curve, 8, 7);
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(kWidth) +
                    " " + number(kHeight) +
                    "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#22272e\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  svg += "<title>" + escaped(curve.title) + "</title>\n";
  svg += label(kLeft, 26, "font-size=\"16\"", curve.title);
  svg += label((kLeft + kRight) / 2, kHeight - 14, "text-anchor=\"middle\"", curve.x_title);
  const double middle = (kTop + kBottom) / 2;
  svg +=
      label(18, middle,
            ("text-anchor=\"middle\" transform=\"rotate(-90 18 " + number(middle) + ")\"").c_str(),
            curve.y_title);
  if (data.empty()) {
    svg +=
        label((kLeft + kRight) / 2, middle, "text-anchor=\"middle\"", "no finite losses to draw");
    return svg + "</svg>\n";
  }
  svg += grid(data) + legend(data);
  const auto place = [&](const LossPoint& point) {
    const double x = kLeft + data.x.share(static_cast<double>(point.step)) * (kRight - kLeft);
    return std::pair{number(x), number(kBottom - data.y.share(point.loss) * (kBottom - kTop))};
  };
  const size_t stride = 1 + data.raw.size() / kMostDots;
  svg += "<g fill=\"#1f5fbf\" fill-opacity=\"0.22\">\n";
  for (size_t i = 0; i < data.raw.size(); i += stride) {
    const auto [x, y] = place(data.raw[i]);
    svg += "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"1.6\"/>\n";
  }
  svg +=
      "</g>\n<polyline fill=\"none\" stroke=\"#1f5fbf\" stroke-width=\"2\" "
      "stroke-linejoin=\"round\" points=\"";
  for (size_t i = 0; i < data.line.size(); ++i) {
    if (i % stride != 0 && i + 1 != data.line.size()) continue;
    const auto [x, y] = place(data.line[i]);
    svg += (i == 0 ? "" : " ") + x + "," + y;
  }
  svg += "\"/>\n<g fill=\"#fff\" stroke=\"#d1491f\" stroke-width=\"2\">\n";
  for (const LossPoint& point : data.marks) {
    const auto [x, y] = place(point);
    svg += "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"3.5\"/>\n";
  }
  return svg + "</g>\n</svg>\n";
}

void write_svg_plot(const std::filesystem::path& file, const LossCurve& curve) {
  write_file_atomically(file, svg_plot(curve));
}

}  // namespace coda
