// SPDX-License-Identifier: Apache-2.0
// Orders the parameters of each shard, then pads each to whole rows and each shard to whole groups.
#include "train/update_rows.h"

#include <algorithm>
#include <utility>

#include "base/rounding.h"
#include "train/gradient_session.h"

namespace coda {

int64_t UpdateRows::elements() const {
  int64_t sum = 0;
  for (const Shard& shard : shards) sum += shard.rows * kElements;
  return sum;
}

UpdateRows update_rows(const std::vector<ExchangedParameter>& parameters,
                       const ExchangePlan& exchange, const std::set<std::string>& squared,
                       const std::set<std::string>& apart, int processes) {
  UpdateRows result;
  result.shards.resize(exchange.shards.size());
  result.places.resize(parameters.size());
  for (const auto& [is_squared, is_apart] :
       {std::pair(true, true), {true, false}, {false, false}, {false, true}}) {
    for (const size_t i : exchange.order) {
      const std::string& name = parameters[i].name;
      if (squared.contains(name) != is_squared || apart.contains(name) != is_apart) continue;
      UpdateRows::Shard& shard = result.shards[exchange.shard_of[i]];
      result.places[i] = {exchange.shard_of[i], shard.rows};
      shard.rows += ceil_div(parameters[i].elements, UpdateRows::kElements);
      if (is_squared) shard.squared = shard.rows;
      if (is_squared && is_apart) shard.first_shared = shard.rows;
      if (!is_apart) shard.together = shard.rows - shard.first_shared;
    }
  }
  for (UpdateRows::Shard& shard : result.shards) {
    shard.rows = round_up(std::max<int64_t>(shard.rows, 1), UpdateRows::kGroup * processes);
    if (apart.empty()) shard.together = shard.rows / processes;
  }
  return result;
}

ResultPlaces gradient_places(const std::vector<ExchangedParameter>& parameters,
                             const UpdateRows& rows) {
  constexpr int64_t kRowBytes = UpdateRows::kElements * size_of(DType::f32);
  ResultPlaces result;
  std::vector<int64_t> first_bytes;
  for (const UpdateRows::Shard& shard : rows.shards) {
    first_bytes.push_back(result.bytes);
    result.bytes += shard.rows * kRowBytes;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const UpdateRows::Place& place = rows.places[i];
    result.offsets.emplace(gradient_name(parameters[i].name),
                           first_bytes[place.shard] + place.first_row * kRowBytes);
  }
  return result;
}

}  // namespace coda
