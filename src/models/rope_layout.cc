// SPDX-License-Identifier: Apache-2.0
#include "models/rope_layout.h"

#include <cmath>

namespace coda {

void add_rows(int64_t first, int64_t count, std::vector<int32_t>& order) {
  for (int64_t i = 0; i < count; ++i) order.push_back(static_cast<int32_t>(first + i));
}

void add_turning_head(int64_t first, int64_t head_dim, int64_t rotary_dim,
                      std::vector<int32_t>& order) {
  const int64_t half = rotary_dim / 2, still = (head_dim - rotary_dim) / 2;
  add_rows(first, half, order);
  add_rows(first + rotary_dim, still, order);
  add_rows(first + half, half, order);
  add_rows(first + rotary_dim + still, still, order);
}

RopeTables rope_tables(ModelBuilder& m, const std::string& name, const RopeAngles& angles,
                       int64_t positions, int64_t head_dim) {
  const auto pairs = static_cast<size_t>(head_dim / 2);
  std::vector<float> cos;
  std::vector<float> sin;
  cos.reserve(static_cast<size_t>(positions) * pairs);
  sin.reserve(cos.capacity());
  for (int64_t p = 0; p < positions; ++p) {
    for (const double step : angles.steps) {
      cos.push_back(static_cast<float>(std::cos(static_cast<double>(p) * step) * angles.factor));
      sin.push_back(static_cast<float>(std::sin(static_cast<double>(p) * step) * angles.factor));
    }
    cos.resize(static_cast<size_t>(p + 1) * pairs, 1.0F);
    sin.resize(cos.size(), 0.0F);
  }
  return {m.table(name + "cos", positions, head_dim / 2, std::move(cos)),
          m.table(name + "sin", positions, head_dim / 2, std::move(sin)), m.model().positions};
}

}  // namespace coda
