// SPDX-License-Identifier: Apache-2.0
// Where parameters lie in the matrices of an update (DeviceUpdate), known from a plan before any of
// them is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "coda/session.h"
#include "train/exchange_plan.h"

namespace coda {

// A matrix for each shard of an ExchangePlan, [rows, kElements]. Each parameter begins with a row:
// first those whose gradients' squares somebody else leaves, in the middle those that one launch
// updates, and among themselves in the plan's order.
struct UpdateRows {
  static constexpr int64_t kElements = 512;  // of a row
  static constexpr int64_t kGroup = 64;      // rows whose squares are added together

  struct Shard {
    int64_t rows = 0;            // of all processes, each of which has as many groups
    int64_t squared = 0;         // from the first, whose squares somebody else leaves
    int64_t first_together = 0;  // of a process's own rows: those that one launch updates
    int64_t together = 0;
  };
  struct Place {
    size_t shard = 0;
    int64_t first_row = 0;
  };
  std::vector<Shard> shards;
  std::vector<Place> places;  // by parameter

  int64_t elements() const;  // of all shards
};

// `squared`, `apart`: names, of one process only; those apart have a launch of their own.
UpdateRows update_rows(const std::vector<ExchangedParameter>& parameters,
                       const ExchangePlan& exchange, const std::set<std::string>& squared,
                       const std::set<std::string>& apart, int processes);

// The fp32 gradients in one memory, the shards one behind the other.
ResultPlaces gradient_places(const std::vector<ExchangedParameter>& parameters,
                             const UpdateRows& rows);

}  // namespace coda
