// SPDX-License-Identifier: Apache-2.0
// A stream that goes down the tile's rows is bound to the tile once and moved to each strip; planes
// of the strip, slots, offsets and states begin anew with every strip.
#include "cpu/chain_run.h"
#include "base/rounding.h"

namespace coda::cpu {
namespace {

// How far down loads and stores ask for what they will need: behind the rows' own arithmetic, and
// few enough lines to stay in the first-level cache.
constexpr int64_t kRowsAhead = 2;

}  // namespace

ChainRun::ChainRun(const Chain& chain)
    : chain_(chain), streams_(chain.streams.size()), offsets_(chain.streams.size()) {}

void ChainRun::bind(const TileContext& tile) {
  tile_ = tile;
  cols_ = tile.width(chain_);
  streams_.gathers.clear();
  for (size_t k = 0; k < chain_.streams.size(); ++k) bind(k, chain_.streams[k]);
  in_tile_ = streams_.first;
  gathered_.clear();
  for (const ChainStreams::Gather& g : streams_.gathers) gathered_.push_back(g.rows);
}

void ChainRun::bind(size_t k, const StreamForm& form) {
  switch (form.kind) {
    case StreamKind::memory:
    case StreamKind::ahead: return bind_memory(k, form);
    case StreamKind::offsets:
      streams_.chunk_bytes[k] = kChunkVectors * static_cast<int64_t>(sizeof(int64_t));
      [[fallthrough]];
    case StreamKind::neighbours:
      fill_offsets(form, offsets_[k]);
      streams_.first[k] = address(offsets_[k].data());
      return;
    case StreamKind::place: return bind_place(k, form.place);
    case StreamKind::slot:
      streams_.first[k] = address(tile_.slots + form.index * kWidestChunk);
      return;
    case StreamKind::row_partial: {
      const TensorView& t = tile_.tensors[form.index];
      streams_.row_bytes[k] = t.row_stride * 4;
      streams_.first[k] =
          address(t.data) + tile_.m0 * streams_.row_bytes[k] + tile_.n0 / kPartialSpan * 4;
      streams_.chunk_bytes[k] = chain_.machine.columns / kPartialSpan * 4;
      return;
    }
    case StreamKind::state:
      streams_.first[k] = address(tile_.states + form.index * 2 * tile_.stride);
      streams_.chunk_bytes[k] = chain_.machine.columns * 4;
      return;
  }
}

// Columns are found by the offsets. Of gathered rows none is asked for: they come again and again.
void ChainRun::bind_memory(size_t k, const StreamForm& form) {
  const TensorView& t = tile_.tensors[form.index];
  const int64_t row_bytes = t.row_stride * size_of(t.dtype);
  streams_.first[k] = address(t.data);
  if (form.index_tensor < 0) {
    const int64_t rows = form.kind == StreamKind::ahead ? kRowsAhead : 0;
    streams_.first[k] += (tile_.m0 + rows) * row_bytes;
    streams_.row_bytes[k] = row_bytes;
  } else if (form.kind == StreamKind::memory) {
    const auto* rows = static_cast<const int32_t*>(tile_.tensors[form.index_tensor].data);
    streams_.gathers.push_back({k, rows + tile_.m0, row_bytes});
  }
}

void ChainRun::bind_place(size_t k, const Place& place) {
  const float* p = nullptr;
  switch (place.kind) {
    case PlaceKind::strip:
      p = tile_.strips + place.index * tile_.strip_rows * tile_.stride;
      streams_.row_bytes[k] = tile_.stride * 4;
      break;
    case PlaceKind::accumulator:
      p = tile_.accumulators + place.index * tile_.plane_rows * tile_.stride;
      streams_.row_bytes[k] = tile_.stride * 4;
      break;
    case PlaceKind::row_vector:
      p = tile_.vectors->vector(place.index, tile_.scratch) + tile_.m0;
      streams_.row_bytes[k] = 4;
      break;
    case PlaceKind::column_vector:
      p = tile_.vectors->vector(place.index, tile_.scratch) + tile_.first_column(chain_);
      break;
    case PlaceKind::scalar: p = tile_.vectors->vector(place.index, tile_.scratch); break;
    case PlaceKind::none:
    case PlaceKind::value: break;
  }
  streams_.first[k] = address(p);
  if (!place.is_constant_along_columns()) streams_.chunk_bytes[k] = chain_.machine.columns * 4;
}

// For each vector of a row, its first column in memory.
void ChainRun::fill_offsets(const StreamForm& form, std::vector<int64_t>& offsets) const {
  const int64_t lanes = chain_.machine.columns / kChunkVectors;
  const bool is_memory = form.kind == StreamKind::offsets;
  offsets.clear();
  for (int64_t j = 0; j < (is_memory ? cols_ : chain_.machine.columns); j += lanes) {
    offsets.push_back(is_memory ? form.map.at(tile_.first_column(chain_) + j, form.plane) : j);
  }
  offsets.resize(round_up(offsets.size(), kChunkVectors));
}

void ChainRun::run(int64_t row, int64_t rows) {
  for (size_t k = 0; k < chain_.streams.size(); ++k) {
    const StreamForm& form = chain_.streams[k];
    const bool is_strip = form.kind == StreamKind::place && form.place.kind == PlaceKind::strip;
    if (!is_strip) streams_.first[k] = in_tile_[k] + row * streams_.row_bytes[k];
  }
  for (size_t g = 0; g < gathered_.size(); ++g) streams_.gathers[g].rows = gathered_[g] + row;
  chain_.machine.run(chain_.whole.data(), chain_.ragged.data(), streams_, rows, cols_);
}

}  // namespace coda::cpu
