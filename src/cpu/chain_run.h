// SPDX-License-Identifier: Apache-2.0
// Where a chain's streams are in one tile, and its runs over the tile's strips.
#pragma once

#include <vector>

#include "cpu/chain.h"
#include "cpu/tile_context.h"

namespace coda::cpu {

class ChainRun {
 public:
  explicit ChainRun(const Chain& chain);

  void bind(const TileContext& tile);
  // Over a strip of the tile, from its row `row` on.
  void run(int64_t row, int64_t rows);

 private:
  void bind(size_t stream, const StreamForm& form);
  void bind_memory(size_t stream, const StreamForm& form);
  void bind_place(size_t stream, const Place& place);
  void fill_offsets(const StreamForm& form, std::vector<int64_t>& offsets) const;

  const Chain& chain_;
  TileContext tile_;
  int64_t cols_ = 0;
  ChainStreams streams_;
  std::vector<int64_t> in_tile_;               // each stream's place at the tile's first row
  std::vector<const int32_t*> gathered_;       // likewise
  std::vector<std::vector<int64_t>> offsets_;  // of each stream of offsets, by its number
};

}  // namespace coda::cpu
