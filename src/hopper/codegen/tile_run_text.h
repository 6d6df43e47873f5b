// SPDX-License-Identifier: Apache-2.0
// The text of a tile space's `run` while it is written: lines that stand together, in this order.
#pragma once

#include <string>

namespace coda::hopper {

struct TileRunText {
  std::string before;       // scalars, columns, accumulators
  std::string row_arrays;   // what is loaded of each row
  std::string first_loads;  // what other loads need
  std::string loads;
  std::string gathers;     // loads that wait for an index: behind those that wait for nothing
  std::string body;        // of one row
  std::string after_rows;  // that are in flight together
  std::string after;       // all rows
};

}  // namespace coda::hopper
