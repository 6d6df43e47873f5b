// SPDX-License-Identifier: Apache-2.0
#include "measure/candidate.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace coda {

std::string json_text(const Timed& timed) {
  nlohmann::ordered_json json{{"candidate", timed.name}};
  for (const TimingRegime& regime : kTimingRegimes) {
    const Spread& times = timed.*regime.times;
    if (times.median_ms == 0) continue;
    const std::string name = regime.name;
    json[name + "_ms"] = times.median_ms;
    json[name + "_low_ms"] = times.low_ms;
    json[name + "_high_ms"] = times.high_ms;
    if (times.mhz > 0) json[name + "_mhz"] = times.mhz;
  }
  if (timed.watts > 0) json["watts"] = timed.watts;
  return json.dump();
}

namespace measure {

Spread spread(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double fraction) {
    return samples[static_cast<std::size_t>(fraction * static_cast<double>(samples.size() - 1))];
  };
  return {.median_ms = at(0.5), .low_ms = at(0.1), .high_ms = at(0.9)};
}

std::string ratios(const Timed& timed, const Timed& to) {
  std::string text;
  for (const TimingRegime& regime : kTimingRegimes) {
    const double time = (timed.*regime.times).median_ms;
    const double other = (to.*regime.times).median_ms;
    if (time == 0 || other == 0) continue;
    char field[64];
    std::snprintf(field, sizeof field, "%s%.3f (%s)", text.empty() ? "" : "  ", time / other,
                  regime.name);
    text += field;
  }
  return text;
}

}  // namespace measure
}  // namespace coda
