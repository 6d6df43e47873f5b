// SPDX-License-Identifier: Apache-2.0
// The pictures of a run: they fit, show where the losses are, and survive losses and sizes of any
// kind.
#include "coda/loss_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <sstream>

#include "io/mapped_file.h"
#include "io/temp_folder.h"
#include "train/plot_axis.h"

namespace coda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Characters, not bytes.
int64_t width_of(const std::string& line) {
  return std::count_if(line.begin(), line.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

LossCurve falling_curve(int64_t steps) {
  LossCurve curve;
  curve.title = "a run";
  std::mt19937_64 random(1);
  for (int64_t step = 0; step < steps; ++step) {
    const double noise = static_cast<double>(random() % 1000) / 5000;
    curve.train.push_back({step, 1.5 + 4 * std::exp(-static_cast<double>(step) / 50) + noise});
    if (step % 100 == 50) curve.held_out.push_back({step, 2.0});
  }
  return curve;
}

TEST(RoundAxis, CoversTheRangeWithRoundTicks) {
  const PlotAxis axis = round_axis(1.52, 5.7, 6);
  EXPECT_DOUBLE_EQ(axis.low, 1);
  EXPECT_DOUBLE_EQ(axis.step, 1);
  EXPECT_DOUBLE_EQ(axis.high(), 6);
  EXPECT_EQ(axis.label(2), "2");
  EXPECT_EQ(round_axis(0, 0.07, 6).label(0.04), "0.04");
  EXPECT_EQ(round_axis(0, 100000, 6).label(20000), "20k");
  EXPECT_EQ(round_axis(0, 7e6, 6).label(4e6), "4M");
  EXPECT_EQ(round_axis(-1, 1, 3).label(-0.0), "0");

  constexpr uint64_t kSeed = 4;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  std::uniform_real_distribution<double> digits(-1, 1);
  std::uniform_int_distribution<int> powers(-6, 9);
  for (int run = 0; run < 1000; ++run) {
    const double a = digits(random) * std::pow(10.0, powers(random));
    const double b = digits(random) * std::pow(10.0, powers(random));
    const PlotAxis round = round_axis(std::min(a, b), std::max(a, b), 6);
    EXPECT_LE(round.share(std::max(a, b)), 1 + 1e-6) << a << " " << b;
    EXPECT_GE(round.share(std::min(a, b)), -1e-6) << a << " " << b;
    EXPECT_LE(round.ticks, 9);
    EXPECT_GE(round.ticks, 2);
    for (int i = 1; i < round.ticks; ++i) {
      EXPECT_NE(round.label(round.tick(i)), round.label(round.tick(i - 1)));
    }
  }
}

TEST(TerminalPlot, FitsAndHasTitlesAndTicks) {
  for (const int columns : {24, 40, 80}) {
    const std::string plot = terminal_plot(falling_curve(500), columns, 16);
    const std::vector<std::string> lines = lines_of(plot);
    EXPECT_EQ(lines.size(), 1u + 16 + 2);
    for (const std::string& line : lines) EXPECT_LE(width_of(line), columns) << plot;
    EXPECT_THAT(lines.front(), HasSubstr("a run: loss"));
    EXPECT_THAT(lines.back(), HasSubstr("step"));
    EXPECT_THAT(plot, HasSubstr("┤"));
    EXPECT_THAT(plot, HasSubstr("o"));
  }
}

TEST(TerminalPlot, ALineThatFallsFallsInThePicture) {
  LossCurve curve;
  curve.train = {{0, 3}, {100, 1}};
  const std::vector<std::string> lines = lines_of(terminal_plot(curve, 80, 10));
  const auto left_blanks = [](const std::string& line) {
    const size_t bar = std::max(line.find("│"), line.find("┤"));
    const size_t axis = std::min(line.find("│"), line.find("┤"));
    const std::string plot = line.substr((axis == std::string::npos ? bar : axis) + 3);
    return plot.find_first_not_of(' ');
  };
  size_t before = 0;
  for (int row = 1; row <= 10; ++row) {
    const size_t blanks = left_blanks(lines[static_cast<size_t>(row)]);
    ASSERT_NE(blanks, std::string::npos) << "row " << row << " is empty";
    if (row > 1) {
      EXPECT_GT(blanks, before) << "row " << row;
    }
    before = blanks;
  }
}

TEST(TerminalPlot, SurvivesAnyLosses) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  LossCurve curve;
  curve.title = "odd";
  EXPECT_EQ(terminal_plot(curve), "odd: no finite losses to draw\n");
  curve.train = {{0, std::nan("")}, {1, kInfinity}, {2, -kInfinity}};
  EXPECT_EQ(terminal_plot(curve), "odd: no finite losses to draw\n");
  curve.train = {{7, 2.5}};
  EXPECT_THAT(terminal_plot(curve), AllOf(HasSubstr("2.5"), HasSubstr("*")));
  for (const auto& losses : std::vector<std::vector<double>>{{0, 0},
                                                             {1e-12, 1e-12},
                                                             {1e29, -1e29},
                                                             {1e308, -1e308, 1},
                                                             {5, 5, std::nan(""), 5},
                                                             {-1, 0, 1}}) {
    curve.train.clear();
    for (const double loss : losses) {
      curve.train.push_back({static_cast<int64_t>(curve.train.size()) * 1000000000, loss});
    }
    for (const std::string& line : lines_of(terminal_plot(curve))) EXPECT_LE(width_of(line), 80);
    EXPECT_THAT(svg_plot(curve), Not(HasSubstr("nan")));
  }
}

TEST(SvgPlot, HasTitledAxesALineAndFaintPoints) {
  LossCurve curve = falling_curve(500);
  curve.title = "a < b & \"c\"";
  const std::string svg = svg_plot(curve);
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, HasSubstr(">step</text>"));
  EXPECT_THAT(svg, HasSubstr(">loss (nats a token)</text>"));
  EXPECT_EQ(count_of(svg, "<polyline"), 1u);
  EXPECT_EQ(count_of(svg, "r=\"1.6\""), 500u);
  EXPECT_EQ(count_of(svg, "r=\"3.5\""), 5u + 1);  // and one in the legend
  EXPECT_THAT(svg, HasSubstr("http://www.w3.org/2000/svg"));
  EXPECT_EQ(count_of(svg, "http"), 1u);  // the namespace; nothing is fetched
  EXPECT_LT(svg_plot(falling_curve(200000)).size(), 500000u);
  EXPECT_THAT(svg_plot({}), HasSubstr("no finite losses"));
}

TEST(SvgPlot, IsWrittenAsAWhole) {
  const TempFolder folder;
  const LossCurve curve = falling_curve(100);
  write_svg_plot(folder / "loss.svg", curve);
  EXPECT_EQ(io::read_file(folder / "loss.svg"), svg_plot(curve));
  EXPECT_EQ(folder.entries(), std::vector<std::string>{"loss.svg"});
}

TEST(Smoothed, KeepsEndsAndMeansTheMiddle) {
  std::vector<LossPoint> points;
  for (int64_t i = 0; i < 1000; ++i) points.push_back({i, static_cast<double>(i % 2)});
  const std::vector<LossPoint> line = smoothed(points);
  ASSERT_EQ(line.size(), points.size());
  EXPECT_EQ(line.front(), points.front());
  EXPECT_EQ(line.back(), points.back());
  for (size_t i = 100; i < 900; ++i) EXPECT_NEAR(line[i].loss, 0.5, 0.05);
  EXPECT_EQ(smoothed({points[0], points[1]}), (std::vector<LossPoint>{points[0], points[1]}));
}

}  // namespace
}  // namespace coda
