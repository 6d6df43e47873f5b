// SPDX-License-Identifier: Apache-2.0
// The layout of parameters in the matrices of an update (DeviceUpdate), computed from a plan before
// anything is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "coda/session.h"
#include "train/exchange_plan.h"

namespace coda {

// One matrix [rows, kElements] for each shard of an ExchangePlan. Each parameter starts at a new
// row. First come parameters whose squared gradients the plan stores; parameters that share one
// launch are in the middle; otherwise they have the plan's order.
struct UpdateRows {
  static constexpr int64_t kElements = 512;  // per row
  static constexpr int64_t kGroup = 64;      // rows whose squares are summed together

  struct Shard {
    int64_t rows = 0;          // over all processes, with equally many groups each
    int64_t squared = 0;       // leading rows whose squares the plan stores
    int64_t first_shared = 0;  // first own row of the shared launch
    int64_t together = 0;
  };
  struct Place {
    size_t shard = 0;
    int64_t first_row = 0;
  };
  std::vector<Shard> shards;
  std::vector<Place> places;  // by parameter

  int64_t elements() const;  // over all shards
};

// `squared`, `apart`: names, for a single process only; those apart have separate launches.
UpdateRows update_rows(const std::vector<ExchangedParameter>& parameters,
                       const ExchangePlan& exchange, const std::set<std::string>& squared,
                       const std::set<std::string>& apart, int processes);

// The fp32 gradients in one allocation, shard after shard.
ResultPlaces gradient_places(const std::vector<ExchangedParameter>& parameters,
                             const UpdateRows& rows);

}  // namespace coda
