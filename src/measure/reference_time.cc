// SPDX-License-Identifier: Apache-2.0
#include "measure/reference_time.h"

#include <cmath>
#include <string>

#include "coda/error.h"
#include "measure/products.h"

namespace coda::measure {

double evaluation_seconds(const Program& program, const DimValues& sizes) {
  constexpr double kMultiplyAdds = 8e8;  // a second
  constexpr double kElements = 2e8;
  double seconds = 0;
  for (const ProductShape& product : products_of(program, sizes))
    seconds += product.flops() / 2 / kMultiplyAdds;
  for (const Step& step : program.steps)
    seconds += static_cast<double>(step.shape.rows.evaluate(sizes)) *
               static_cast<double>(step.shape.cols.evaluate(sizes)) / kElements;
  return seconds;
}

void require_short(std::span<const Program> programs, const DimValues& sizes, double evaluations) {
  constexpr double kMost = 600;
  double seconds = 0;
  for (const Program& program : programs)
    seconds += evaluations * evaluation_seconds(program, sizes);
  std::string at;
  for (const auto& [name, value] : sizes) at += " " + name + "=" + std::to_string(value);
  require(seconds <= kMost, "program '" + programs.front().name + "' at" + at +
                                ": the reference in float64 would take about " +
                                std::to_string(std::lround(seconds / 60)) +
                                " minutes; check it at smaller sizes");
}

}  // namespace coda::measure
