// SPDX-License-Identifier: Apache-2.0
// The loops over tiles. B is packed once for all threads. One thread multiplies a row block of A
// with all panels of B; it reads the block in place or packs it into its own cache. The K loop runs
// in blocks outside, and over the panels of a tile inside. K is never split among threads, so that
// each sum has one order.
#include "cpu/tile_space_kernel.h"

#include <omp.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "base/rounding.h"
#include "coda/error.h"
#include "cpu/epilogue.h"
#include "cpu/pack.h"
#include "cpu/task_ranges.h"

namespace coda::cpu {
namespace {

constexpr int64_t kTileRows = 128;
constexpr int64_t kTileColumns = 128;  // of a GEMM: the data of its epilogue fits into L2, too
// With up to this many rows, each panel of B serves only one tile, which packs the panel itself, in
// cache. Otherwise B would pass through memory two more times, which takes longer than the GEMM.
constexpr int64_t kFewRows = 16;
constexpr int64_t kCopiedColumns = 2048;   // without a GEMM: whole rows, in memory order
constexpr int64_t kFewestCopied = 256;     // the minimum, if threads would otherwise be idle
constexpr int64_t kPanelsAtOnce = 32;      // of B, packed per visit of a row
constexpr int64_t kRowsAtOnce = 32;        // of B, packed per task
constexpr int64_t kStripBytes = 64 << 10;  // of planes: fits into near caches with few calls

int64_t bytes_of_a(const AOperand& a, int64_t rows) {
  return rows * packed_depth(a.packed, a.k) * size_of(a.packed);
}

// The part of B that one packing task handles. If k runs along rows, it is long pieces of few rows:
// visiting a row panel by panel would read only one or two cache lines of a new page each time.
struct PackedAtOnce {
  int64_t panels = 1;
  int64_t k = 0;
};
PackedAtOnce packed_at_once(const BOperand& b, int64_t panels) {
  if (b.transposed) return {1, block_depth(b.packed, b.k)};
  return {ceil_div(panels, ceil_div(panels, kPanelsAtOnce)), kRowsAtOnce};
}

GemmOperand operand_of(const BOperand& b, std::span<const TensorView> tensors) {
  return {tensors[b.tensor], !b.transposed, b.scales < 0 ? nullptr : &tensors[b.scales]};
}

// Distributes row blocks evenly, so that no thread waits for another's last block or packs a block
// again. Sums over columns need whole spans.
int64_t tile_rows(const TileProgram& p, int threads) {
  if (p.accumulators == 0 || p.needs_all_columns) return kPartialSpan;
  const int64_t blocks = round_up(ceil_div(p.rows, kTileRows), threads);
  if (p.states > 0 || blocks > 4 * threads || p.rows < blocks * kPartialSpan) return kTileRows;
  return round_up(ceil_div(p.rows, blocks), 16);
}

int64_t tile_columns(const TileProgram& p, int threads) {
  if (p.accumulators > 0) return kTileColumns;
  int64_t cols = kCopiedColumns;
  const int64_t row_blocks = ceil_div(p.rows, kPartialSpan);
  while (cols > kFewestCopied && row_blocks * ceil_div(p.cols, cols) < 4 * threads) cols /= 2;
  return cols;
}

}  // namespace

TileShape choose_tile_shape(const TileProgram& p, int strip_planes, const CpuOptions& options,
                            int threads) {
  TileShape shape;
  const int64_t all_columns = round_up(p.cols, kPanelColumns);
  shape.rows = options.tile_rows > 0 ? options.tile_rows : tile_rows(p, threads);
  shape.cols = options.tile_cols > 0 ? options.tile_cols : tile_columns(p, threads);
  const int64_t step = std::lcm(kPanelColumns, p.column_step);
  shape.cols =
      std::min(p.needs_all_columns ? all_columns : round_up(shape.cols, step), all_columns);
  shape.stride = std::max(shape.cols, round_up(p.widest_plane, 16));
  shape.strip_rows = kPartialSpan;
  while (shape.strip_rows > 1 &&
         shape.strip_rows * shape.stride * 4 * std::max(strip_planes, 1) > kStripBytes) {
    shape.strip_rows /= 2;
  }
  return shape;
}

TileSpaceKernel::TileSpaceKernel(TileProgram program, VectorProgram vectors,
                                 const CpuOptions& options, int threads)
    : program_(std::move(program)),
      strip_planes_(share_strip_planes(program_)),
      vectors_(std::move(vectors)),
      shape_(choose_tile_shape(program_, strip_planes_, options, threads)),
      threads_(threads),
      library_(options.gemm),
      packs_for_itself_(program_.rows <= kFewRows) {
  b_items_.push_back(0);
  for (const BOperand& b : program_.b) {
    if (packs_for_itself_) break;
    const int64_t panels = ceil_div(program_.cols, kPanelColumns);
    b_offsets_.push_back(
        pieces_.add(panels * kPanelColumns * packed_depth(b.packed, b.k) * size_of(b.packed)));
    const PackedAtOnce at_once = packed_at_once(b, panels);
    b_items_.push_back(b_items_.back() +
                       ceil_div(panels, at_once.panels) * ceil_div(b.k, at_once.k));
  }
  vectors_.place(pieces_);  // after B, which the next space may share
  for (const AOperand& a : program_.a) {
    a_offsets_.push_back(a_block_bytes_);
    a_block_bytes_ += round_up(bytes_of_a(a, shape_.rows), 64);
  }
  ScratchPieces own;
  thread_.a = own.add(a_block_bytes_);
  const int64_t plane = shape_.rows * shape_.stride;
  thread_.accumulators = own.add_floats(program_.accumulators * plane + kVectorPad);
  thread_.strips = own.add_floats(strip_planes_ * shape_.strip_rows * shape_.stride + kVectorPad);
  thread_.states = own.add_floats(program_.states * kMostPartialLanes * shape_.stride + kVectorPad);
  thread_.bytes =
      round_up(own.size(), 4096) + 64;  // threads' planes do not start at the same cache sets
  threads_offset_ = pieces_.add(thread_.bytes * threads_);

  const int last_rows = static_cast<int>((program_.rows - 1) % shape_.rows + 1);
  const int full_rows = static_cast<int>(std::min(shape_.rows, program_.rows));
  for (const AOperand& a : program_.a) {
    const int64_t depth = block_depth(a.packed, a.k);
    const int full_k = static_cast<int>(packed_depth(a.packed, std::min(depth, a.k)));
    const int last_k = static_cast<int>(packed_depth(a.packed, (a.k - 1) % depth + 1));
    Kernels kernels;
    kernels.a_by_columns = a.transposed && takes_a_by_columns(library_);
    for (int r = 0; r < 2; ++r) {
      for (int k = 0; k < 2; ++k) {
        for (int accumulate = 0; accumulate < 2; ++accumulate) {
          kernels.kernel[r][k][accumulate] = make_tile_kernel(
              library_, a.packed, r == 0 ? full_rows : last_rows, k == 0 ? full_k : last_k,
              shape_.stride, accumulate == 1, kernels.a_by_columns);
        }
      }
    }
    kernels_.push_back(kernels);
  }
  for (const PlaneGemm& gemm : program_.gemms) {
    for (const PlaneGemm::Segment& segment : gemm.segments) {
      const AOperand& a = program_.a[segment.a];
      kernel_calls_ += ceil_div(a.k, block_depth(a.packed, a.k)) * (shape_.cols / kPanelColumns);
    }
  }
  find_streams();
}

void TileSpaceKernel::find_streams() {
  for (const TileOp& op : program_.ops) {
    const bool is_load = op.kind == TileOpKind::load || op.kind == TileOpKind::load_pairs;
    const bool is_store = op.kind == TileOpKind::store || op.kind == TileOpKind::store_pairs;
    if ((!is_load && !is_store) || op.is_narrow || op.index_tensor >= 0) continue;
    const bool is_paired = op.map.half > 0;
    if (op.map.stored != program_.cols * (is_paired ? 2 : 1)) continue;  // repeated: in cache
    Stream stream{op.tensor, 1, 0, is_store};
    if (is_paired && op.map.half < program_.cols) {
      if (op.plane == 1) continue;  // loaded with the first
      stream.scale = 2;
    } else {
      stream.first = op.plane * op.map.half;
    }
    const auto is_same = [&](const Stream& s) {
      return s.tensor == stream.tensor && s.first == stream.first;
    };
    if (std::none_of(streams_.begin(), streams_.end(), is_same)) streams_.push_back(stream);
  }
}

void TileSpaceKernel::prefetch(const TileContext& tile, int64_t part, int64_t parts) const {
  const int64_t begin = tile.rows * part / parts;
  const int64_t end = tile.rows * (part + 1) / parts;
  for (const Stream& stream : streams_) {
    const TensorView& t = tile.tensors[stream.tensor];
    const int64_t element = size_of(t.dtype);
    const char* data = static_cast<const char*>(t.data);
    for (int64_t i = begin; i < end; ++i) {
      const char* row =
          data + ((tile.m0 + i) * t.row_stride + tile.n0 * stream.scale + stream.first) * element;
      const char* last = row + tile.cols * stream.scale * element - 1;
      for (; row < last; row += 64) {
        if (stream.is_stored) {
          __builtin_prefetch(row, 1, 2);
        } else {
          __builtin_prefetch(row, 0, 2);
        }
      }
    }
  }
}

SpreadLines TileSpaceKernel::packed_next(const TileContext& tile) const {
  SpreadLines next;
  const int64_t m0 = tile.m0 + shape_.rows;
  const int64_t rows = std::min(shape_.rows, program_.rows - m0);
  if (rows <= 0) return next;
  for (const AOperand& a : program_.a) {
    const TensorView& view = tile.tensors[a.tensor];
    if (is_in_place(a, view)) continue;
    const int64_t element = size_of(view.dtype);
    const int64_t stride = view.row_stride * element;
    const char* data = static_cast<const char*>(view.data);
    if (a.transposed) {
      next.add(data + m0 * element, a.k, rows * element, stride);
    } else {
      next.add(data + m0 * stride, rows, a.k * element, stride);
    }
  }
  return next;
}

void TileSpaceKernel::check_row_indices(std::span<const TensorView> tensors) const {
  for (const TileOp& op : program_.ops) {
    const bool gathers = op.kind == TileOpKind::load || op.kind == TileOpKind::load_pairs;
    if (!gathers || op.index_tensor < 0) continue;
    const TensorView& index = tensors[op.index_tensor];
    require(index.row_stride == 1, "a row index vector must be contiguous");
    const auto* rows = static_cast<const int32_t*>(index.data);
    for (int64_t i = 0; i < program_.rows; ++i) {
      if (rows[i] >= 0 && rows[i] < tensors[op.tensor].rows) continue;
      throw Error("row index " + std::to_string(rows[i]) + " at " + std::to_string(i) +
                  " is outside the " + std::to_string(tensors[op.tensor].rows) +
                  " rows of the tensor it gathers from");
    }
  }
}

void TileSpaceKernel::pack_b(std::span<const TensorView> tensors, char* scratch,
                             int64_t item) const {
  size_t which = 0;
  while (item >= b_items_[which + 1]) ++which;
  const BOperand& b = program_.b[which];
  const PackedAtOnce at_once = packed_at_once(b, ceil_div(program_.cols, kPanelColumns));
  const int64_t k_blocks = ceil_div(b.k, at_once.k);
  const int64_t panel = (item - b_items_[which]) / k_blocks * at_once.panels;
  const int64_t panels = std::min(at_once.panels, ceil_div(program_.cols, kPanelColumns) - panel);
  const int64_t k0 = (item - b_items_[which]) % k_blocks * at_once.k;
  int64_t columns[kPanelsAtOnce * kPanelColumns];
  for (int64_t j = 0; j < panels * kPanelColumns; ++j) {
    const int64_t column = panel * kPanelColumns + j;
    columns[j] = column < program_.cols ? b.map.at(column, b.plane) : -1;
  }
  const int64_t bytes = kPanelColumns * size_of(b.packed);  // of one k
  const int64_t depth = packed_depth(b.packed, b.k);
  pack_b_blocks(b.packed, operand_of(b, tensors), columns, panels, k0,
                std::min(at_once.k, b.k - k0),
                scratch + b_offsets_[which] + (panel * depth + k0) * bytes, depth * bytes);
}

void TileSpaceKernel::pack_a(std::span<const TensorView> tensors, char* dst,
                             int64_t row_block) const {
  const int64_t m0 = row_block * shape_.rows;
  const int64_t rows = std::min(shape_.rows, program_.rows - m0);
  for (size_t i = 0; i < program_.a.size(); ++i) {
    const AOperand& a = program_.a[i];
    if (is_in_place(a, tensors[a.tensor])) continue;
    const int64_t depth = block_depth(a.packed, a.k);
    char* out = dst + a_offsets_[i];
    for (int64_t k0 = 0; k0 < a.k; k0 += depth) {
      const int64_t k = std::min(depth, a.k - k0);
      const GemmOperand operand{tensors[a.tensor], a.transposed,
                                a.scales < 0 ? nullptr : &tensors[a.scales]};
      if (kernels_[i].a_by_columns) {
        pack_a_block_by_columns(a.packed, operand, m0, rows, k0, k, out);
      } else {
        pack_a_block(a.packed, operand, m0, rows, k0, k, out);
      }
      out += rows * packed_depth(a.packed, k) * size_of(a.packed);
    }
  }
}

// Rows whose distance is a multiple of a page would compete for a few cache sets.
bool TileSpaceKernel::is_in_place(const AOperand& a, const TensorView& view) const {
  const int64_t row_bytes = view.row_stride * size_of(view.dtype);
  return takes_a_in_place(library_) && !a.transposed && view.dtype == a.packed &&
         packed_depth(a.packed, a.k) == a.k && row_bytes % 4 == 0 && row_bytes % 4096 != 0;
}

const char* TileSpaceKernel::panels_of(const char* scratch, int b, int64_t panel,
                                       int64_t k0) const {
  const BOperand& operand = program_.b[b];
  const int64_t depth = packed_depth(operand.packed, operand.k);
  return scratch + b_offsets_[b] + (panel * depth + k0) * kPanelColumns * size_of(operand.packed);
}

void TileSpaceKernel::multiply(const TileContext& tile, const char* packed_a) const {
  const bool is_last_rows = tile.rows != std::min(shape_.rows, program_.rows);
  const int64_t first_panel = tile.n0 / kPanelColumns;
  const int64_t panels = ceil_div(tile.cols, kPanelColumns);
  // While one call computes, the next panel and the next block of A are prefetched.
  struct Call {
    TileKernel kernel;
    const char* a;
    const char* b;
    float* c;
    int64_t a_bytes;
    int64_t b_bytes;
  };
  int64_t calls = 0;
  const int64_t first_call = tile.n0 / shape_.cols * kernel_calls_;  // of this row block
  const SpreadLines packed_later = packed_next(tile);
  Call pending{};
  const auto run_pending = [&](const Call& next) {
    if (pending.kernel.run != nullptr) {
      Ahead ahead;
      ahead.lines[0] = {next.b, next.b_bytes / kLine};
      if (next.a != pending.a) ahead.lines[1] = {next.a, next.a_bytes / kLine};
      packed_later.ask(first_call + calls, kernel_calls_ * column_blocks(), ahead);
      pending.kernel(pending.a, pending.b, pending.c, ahead);
      prefetch(tile, calls++, kernel_calls_);
    }
    pending = next;
  };
  for (const PlaneGemm& gemm : program_.gemms) {
    float* c = tile.accumulators + gemm.accumulator * shape_.rows * shape_.stride;
    bool accumulate = false;
    for (const PlaneGemm::Segment& segment : gemm.segments) {
      const AOperand& operand = program_.a[segment.a];
      const int64_t depth = block_depth(operand.packed, operand.k);
      const RowsOfA rows = rows_of_a(tile, packed_a, segment.a);
      const char* a = rows.first;
      for (int64_t k0 = 0; k0 < operand.k; k0 += depth) {
        const int64_t k = packed_depth(operand.packed, std::min(depth, operand.k - k0));
        const bool is_last_k = k0 + depth >= operand.k;
        TileKernel kernel = kernels_[segment.a].kernel[is_last_rows][is_last_k][accumulate];
        if (rows.is_in_place) kernel.a_step = rows.step;
        for (int64_t j = 0; j < panels; ++j) {
          kernel.columns = std::min(kPanelColumns, tile.cols - j * kPanelColumns);
          run_pending({kernel, a, panels_of(tile.scratch, segment.b, first_panel + j, k0),
                       c + j * kPanelColumns, rows.is_in_place ? 0 : rows.bytes_of_k * k,
                       k * kPanelColumns * size_of(operand.packed)});
        }
        a += rows.bytes_of_k * k;
        accumulate = true;
      }
    }
  }
  // The last call prefetches what the neighbouring tile starts with.
  if (program_.gemms.empty()) return;
  const PlaneGemm::Segment& first = program_.gemms[0].segments[0];
  const AOperand& operand = program_.a[first.a];
  Call beside{};
  beside.b = panels_of(tile.scratch, first.b,
                       tile.n0 + tile.cols < program_.cols ? first_panel + panels : 0, 0);
  const int64_t depth = std::min(block_depth(operand.packed, operand.k), operand.k);
  beside.b_bytes = packed_depth(operand.packed, depth) * kPanelColumns * size_of(operand.packed);
  beside.a = pending.a;
  run_pending(beside);
}

TileSpaceKernel::RowsOfA TileSpaceKernel::rows_of_a(const TileContext& tile, const char* packed_a,
                                                    int index) const {
  const AOperand& operand = program_.a[index];
  const int64_t element = size_of(operand.packed);
  const TensorView& view = tile.tensors[operand.tensor];
  if (!is_in_place(operand, view))
    return {.first = packed_a + a_offsets_[index], .bytes_of_k = tile.rows * element};
  return {.first = static_cast<const char*>(view.data) + tile.m0 * view.row_stride * element,
          .bytes_of_k = element,
          .is_in_place = true,
          .step = view.row_stride * element / 4};
}

void TileSpaceKernel::pack_and_multiply(const TileContext& tile, const char* packed_a) const {
  alignas(64) thread_local char panel[kPanelColumns * kMaxDepth * sizeof(float)];
  const bool is_last_rows = tile.rows != std::min(shape_.rows, program_.rows);
  for (const PlaneGemm& gemm : program_.gemms) {
    float* c = tile.accumulators + gemm.accumulator * shape_.rows * shape_.stride;
    bool accumulate = false;
    for (const PlaneGemm::Segment& segment : gemm.segments) {
      const AOperand& operand = program_.a[segment.a];
      const BOperand& b = program_.b[segment.b];
      const int64_t depth = block_depth(operand.packed, operand.k);
      const RowsOfA rows = rows_of_a(tile, packed_a, segment.a);
      const char* a = rows.first;
      for (int64_t k0 = 0; k0 < operand.k; k0 += depth) {
        const int64_t k = std::min(depth, operand.k - k0);
        TileKernel kernel =
            kernels_[segment.a].kernel[is_last_rows][k0 + depth >= operand.k][accumulate];
        if (rows.is_in_place) kernel.a_step = rows.step;
        for (int64_t j = 0; j < tile.cols; j += kPanelColumns) {
          kernel.columns = std::min(kPanelColumns, tile.cols - j);
          int64_t columns[kPanelColumns];
          for (int64_t i = 0; i < kPanelColumns; ++i)
            columns[i] = i < kernel.columns ? b.map.at(tile.n0 + j + i, b.plane) : -1;
          pack_b_block(b.packed, operand_of(b, tile.tensors), columns, k0, k, panel);
          kernel(a, panel, c + j);
        }
        a += rows.bytes_of_k * packed_depth(operand.packed, k);
        accumulate = true;
      }
    }
  }
}

bool TileSpaceKernel::shares_b(const TileSpaceKernel& other) const {
  return program_.cols == other.program_.cols && program_.b == other.program_.b &&
         packs_for_itself_ == other.packs_for_itself_;
}

void TileSpaceKernel::run(std::span<const TensorView> tensors, char* scratch,
                          bool b_is_packed) const {
  check_row_indices(tensors);
  vectors_.run(tensors, scratch, threads_);
  TaskRanges tasks(row_blocks() * column_blocks(), threads_);
#pragma omp parallel num_threads(threads_)
  {
    const int thread = omp_get_thread_num();
    char* own = scratch + threads_offset_ + thread * thread_.bytes;
    if (!b_is_packed) {
#pragma omp for schedule(dynamic, 1)
      for (int64_t item = 0; item < b_items_.back(); ++item) pack_b(tensors, scratch, item);
    }

    TileContext tile;
    tile.tensors = tensors;
    tile.vectors = &vectors_;
    tile.scratch = scratch;
    tile.total_rows = program_.rows;
    tile.stride = shape_.stride;
    tile.plane_rows = shape_.rows;
    tile.strip_rows = shape_.strip_rows;
    tile.accumulators = reinterpret_cast<float*>(own + thread_.accumulators);
    tile.strips = reinterpret_cast<float*>(own + thread_.strips);
    tile.states = reinterpret_cast<float*>(own + thread_.states);
    Epilogue epilogue(program_.ops);
    int64_t packed_block = -1;
    for (int64_t task = tasks.take(thread); task >= 0; task = tasks.take(thread)) {
      const int64_t row_block = task / column_blocks();
      tile.m0 = row_block * shape_.rows;
      tile.rows = std::min(shape_.rows, program_.rows - tile.m0);
      if (row_block != packed_block) pack_a(tensors, own + thread_.a, row_block);
      packed_block = row_block;
      tile.n0 = task % column_blocks() * shape_.cols;
      tile.cols = std::min(shape_.cols, program_.cols - tile.n0);
      if (packs_for_itself_) {
        pack_and_multiply(tile, own + thread_.a);
      } else {
        multiply(tile, own + thread_.a);
      }
      epilogue.run(tile);
    }
  }
}

}  // namespace coda::cpu
