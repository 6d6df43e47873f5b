// SPDX-License-Identifier: Apache-2.0
// Each operation locates its planes in the strip and calls one vectorised kernel. Strips are
// processed from top to bottom, so that column partials add rows in order.
#include "cpu/epilogue.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "coda/error.h"
#include "cpu/partials.h"
#include "cpu/vector_ops.h"

namespace coda::cpu {
namespace {

// The columns in memory of a tile's columns.
using Runs = std::vector<ColumnRun>;

class Strip {
 public:
  Strip(const TileContext& tile, int64_t row, int64_t rows) : tile_(tile), row_(row), rows_(rows) {}

  // For an operation on single planes; the same for all strips of a tile.
  void find_runs(const TileOp& op, Runs& runs) const {
    runs.clear();
    const bool moves = op.kind == TileOpKind::load || op.kind == TileOpKind::store ||
                       op.kind == TileOpKind::store_transposed ||
                       op.kind == TileOpKind::column_partial;
    if (!moves) return;
    const int64_t first = tile_.first_column(op);
    const int64_t count = tile_.width(op);
    for (int64_t j = 0; j < count;) {
      const int64_t n = op.map.run(first + j, op.plane, count - j);
      runs.push_back({j, op.map.at(first + j, op.plane), n});
      j += n;
    }
  }

  void run(const TileOp& op, const Runs& runs) const {
    switch (op.kind) {
      case TileOpKind::load:
        return load_strip(tensor(op), memory_rows(op), runs, out(op, 0), tile_.stride);
      case TileOpKind::load_pairs: {
        const StripRows rows = memory_rows(op);
        return for_pair_runs(op, [&](int64_t j, int64_t column, int64_t pairs) {
          load_strip_pairs(tensor(op), rows, column, pairs, out(op, 0) + j, out(op, 1) + j,
                           tile_.stride);
        });
      }
      case TileOpKind::store:
        return store_strip(tensor(op), memory_rows(op), runs, plane(op.in[0]), tile_.stride);
      case TileOpKind::store_transposed:
        return store_strip_transposed(tensor(op), memory_rows(op), runs, plane(op.in[0]),
                                      tile_.stride);
      case TileOpKind::abs_max_into: return raise(op);
      case TileOpKind::store_pairs: {
        const StripRows rows = memory_rows(op);
        return for_pair_runs(op, [&](int64_t j, int64_t column, int64_t pairs) {
          store_strip_pairs(tensor(op), rows, column, pairs, plane(op.in[0]) + j,
                            plane(op.in[1]) + j, tile_.stride);
        });
      }
      case TileOpKind::reduce_group: return reduce(op);
      case TileOpKind::repeat_group: return repeat(op);
      case TileOpKind::row_partial: return reduce_rows(op);
      case TileOpKind::column_partial: return reduce_columns(op, runs);
      case TileOpKind::select_column: return select(op);
      case TileOpKind::elementwise: return elementwise(op.op, sources(op).data(), result(op));
      case TileOpKind::sum: return arithmetic(op.arithmetic, sources(op).data(), result(op));
      case TileOpKind::round: return round_to(op.dtype, sources(op)[0], result(op));
    }
  }

 private:
  const TensorView& tensor(const TileOp& op) const { return tile_.tensors[op.tensor]; }

  float* plane(const Place& p) const {
    if (p.kind == PlaceKind::strip) return tile_.strips + p.index * tile_.strip_rows * tile_.stride;
    return tile_.accumulators + (p.index * tile_.plane_rows + row_) * tile_.stride;
  }
  float* out(const TileOp& op, int k) const { return plane(op.out[k]); }

  std::array<Source, 3> sources(const TileOp& op) const {
    std::array<Source, 3> all;
    for (size_t k = 0; k < all.size(); ++k) all[k] = source(op, op.in[k]);
    return all;
  }
  Source source(const TileOp& op, const Place& p) const {
    const auto vector = [&] { return tile_.vectors->vector(p.index, tile_.scratch); };
    switch (p.kind) {
      case PlaceKind::strip:
      case PlaceKind::accumulator: return {plane(p), tile_.stride, false};
      case PlaceKind::row_vector: return {vector() + tile_.m0 + row_, 1, true};
      case PlaceKind::column_vector: return {vector() + tile_.first_column(op), 0, false};
      case PlaceKind::scalar: return {vector(), 0, true};
      case PlaceKind::none: break;
    }
    return {};
  }
  Result result(const TileOp& op) const {
    return {out(op, 0), tile_.stride, rows_, tile_.width(op)};
  }

  float* state(const TileOp& op) const {
    return tile_.states + op.state * kMostPartialLanes * tile_.stride;
  }

  StripRows memory_rows(const TileOp& op) const {
    const int32_t* index = op.index_tensor < 0
                               ? nullptr
                               : static_cast<const int32_t*>(tile_.tensors[op.index_tensor].data);
    return {tile_.m0 + row_, rows_, index};
  }

  // Calls f(column of the plane, column in memory, count) for neighbouring pairs in memory.
  template <class Function>
  void for_pair_runs(const TileOp& op, const Function& f) const {
    const int64_t stored_pairs = op.map.stored / 2;
    for (int64_t j = 0; j < tile_.cols;) {
      const int64_t pair = (tile_.n0 + j) % stored_pairs;
      const int64_t n = std::min(stored_pairs - pair, tile_.cols - j);
      f(j, 2 * pair, n);
      j += n;
    }
  }

  void reduce(const TileOp& op) const {
    const float* src0 = plane(op.in[0]);
    const float* src1 = op.in[1].kind == PlaceKind::none ? nullptr : plane(op.in[1]);
    const bool is_largest = op.partial == PartialKind::abs_max;
    if (op.span > 0) {
      return (is_largest ? abs_max_group : reduce_group)(
          src0, src1, tile_.stride, op.span, out(op, 0), tile_.stride, rows_, tile_.cols / op.span);
    }
    const auto add = [&](float& sum, float x) {
      sum = is_largest ? larger_magnitude(sum, x) : sum + x;
    };
    // The tile has whole rows: reduces groups of columns as they are in memory.
    for (int64_t i = 0; i < rows_; ++i) {
      float* sums = out(op, 0) + i * tile_.stride;
      std::fill_n(sums, op.groups, 0.0f);
      for (int w = 0; w < 2; ++w) {
        const float* src = w == 0 ? src0 : src1;
        if (src == nullptr) continue;
        for (int64_t j = 0; j < tile_.cols; ++j)
          add(sums[op.map.at(j, w) / op.group], src[i * tile_.stride + j]);
      }
    }
  }

  void repeat(const TileOp& op) const {
    const float* src = plane(op.in[0]);
    if (op.span > 0) {
      return repeat_group(src, tile_.stride, op.span, out(op, 0), tile_.stride, rows_,
                          tile_.cols / op.span);
    }
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < tile_.cols; ++j) {
        out(op, 0)[i * tile_.stride + j] =
            src[i * tile_.stride + op.map.at(j, op.plane) / op.group];
      }
    }
  }

  void reduce_rows(const TileOp& op) const {
    const TensorView& t = tensor(op);
    float* data = static_cast<float*>(t.data);
    const float* src0 = plane(op.in[0]);
    const float* src1 = op.in[1].kind == PlaceKind::none ? nullptr : plane(op.in[1]);
    for (int64_t j = 0; j < tile_.cols; j += kPartialSpan) {
      const int64_t n = std::min(kPartialSpan, tile_.cols - j);
      float* dst = data + (tile_.m0 + row_) * t.row_stride + (tile_.n0 + j) / kPartialSpan;
      row_partial(op.partial, src0 + j, src1 == nullptr ? nullptr : src1 + j, tile_.stride, rows_,
                  n, dst, t.row_stride, tile_.total_rows * t.row_stride);
    }
  }

  // Magnitudes have the same order as their bits; NaN is above all numbers.
  void raise(const TileOp& op) const {
    const float* src = plane(op.in[0]);
    const int64_t width = tile_.width(op);
    uint32_t largest = 0;
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        const uint32_t bits = std::bit_cast<uint32_t>(src[i * tile_.stride + j]) & 0x7fffffffU;
        largest = std::max(largest, bits);
      }
    }
    std::atomic_ref<uint32_t> scalar(*static_cast<uint32_t*>(tensor(op).data));
    uint32_t now = scalar.load(std::memory_order_relaxed);
    while (now < largest &&
           !scalar.compare_exchange_weak(now, largest, std::memory_order_relaxed)) {
    }
  }

  void reduce_columns(const TileOp& op, const Runs& runs) const {
    column_partial(op.partial, plane(op.in[0]), tile_.stride, rows_, tile_.cols,
                   row_ % kPartialSpan, state(op), tile_.stride);
    const bool is_complete =
        row_ % kPartialSpan + rows_ == kPartialSpan || row_ + rows_ == tile_.rows;
    if (!is_complete) return;
    const int64_t spans = partial_spans(tile_.total_rows);
    const int64_t span = (tile_.m0 + row_) / kPartialSpan;
    for (int lane = 0; lane < info(op.partial).lanes; ++lane) {
      const StripRows at{lane * spans + span, 1, nullptr};
      store_strip(tensor(op), at, runs, state(op) + lane * tile_.stride, 0);
    }
  }

  // The tile that contains the row's column stores it. If the index is outside, the first tile
  // stores 0.
  void select(const TileOp& op) const {
    const TensorView& indices = tile_.tensors[op.index_tensor];
    const int64_t all = op.map.stored;
    for (int64_t i = 0; i < rows_; ++i) {
      const int64_t row = tile_.m0 + row_ + i;
      const int64_t column = static_cast<const int32_t*>(indices.data)[row * indices.row_stride];
      float value = 0;
      if (column < 0 || column >= all) {
        if (tile_.n0 != 0) continue;
      } else {
        const int64_t half = op.map.half;
        const int64_t j = half == 0 ? column : column / (2 * half) * half + column % half;
        if (j < tile_.n0 || j >= tile_.n0 + tile_.cols) continue;
        const int which = half == 0 ? 0 : static_cast<int>(column / half % 2);
        value = plane(op.in[which])[i * tile_.stride + j - tile_.n0];
      }
      store_strip(tensor(op), {row, 1, nullptr}, 0, 1, &value, 0);
    }
  }

  const TileContext& tile_;
  const int64_t row_;  // first row of the strip in its tile
  const int64_t rows_;
};

}  // namespace

void Epilogue::run(const TileContext& tile) {
  for (size_t i = 0; i < ops_.size(); ++i) Strip(tile, 0, 0).find_runs(ops_[i], runs_[i]);
  for (int64_t row = 0; row < tile.rows; row += tile.strip_rows) {
    const Strip strip(tile, row, std::min(tile.strip_rows, tile.rows - row));
    for (size_t i = 0; i < ops_.size(); ++i) strip.run(ops_[i], runs_[i]);
  }
}

}  // namespace coda::cpu
