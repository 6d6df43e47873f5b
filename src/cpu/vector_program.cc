// SPDX-License-Identifier: Apache-2.0
// Vectors are short compared with tiles: plain loops over whole vectors, with threads only for
// merging partials.
#include "cpu/vector_program.h"

#include <algorithm>

#include "coda/error.h"
#include "cpu/partials.h"
#include "cpu/tile_memory.h"
#include "cpu/vector_ops.h"

namespace coda::cpu {
namespace {

// A vector in memory is [n, 1] or [1, n]; both are read as one strip.
void load_vector(const TensorView& tensor, float* out) {
  if (tensor.cols > 1) return load_strip(tensor, {0, 1, nullptr}, 0, tensor.cols, out, 0);
  if (tensor.is_contiguous() || tensor.row_stride == 1) {
    const TensorView row{tensor.data, tensor.dtype, 1, tensor.rows, tensor.rows};
    return load_strip(row, {0, 1, nullptr}, 0, tensor.rows, out, 0);
  }
  load_strip(tensor, {0, tensor.rows, nullptr}, 0, 1, out, 1);
}

void store_vector(const TensorView& tensor, const float* in) {
  if (tensor.cols > 1) return store_strip(tensor, {0, 1, nullptr}, 0, tensor.cols, in, 0);
  if (tensor.row_stride == 1) {
    const TensorView row{tensor.data, tensor.dtype, 1, tensor.rows, tensor.rows};
    return store_strip(row, {0, 1, nullptr}, 0, tensor.rows, in, 0);
  }
  store_strip(tensor, {0, tensor.rows, nullptr}, 0, 1, in, 1);
}

}  // namespace

int VectorProgram::number_of(int step) const {
  for (size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].step == step) return static_cast<int>(i);
  }
  throw InternalError("a vector step was not lowered");
}

int VectorProgram::add_step(int step) {
  const Step& s = program_.steps[step];
  Item item;
  item.step = step;
  for (int operand : s.operands) item.operands.push_back(number_of(operand));
  item.length = s.shape.rows.evaluate(sizes_) * s.shape.cols.evaluate(sizes_);
  items_.push_back(std::move(item));
  return static_cast<int>(items_.size()) - 1;
}

int VectorProgram::add_plane(int source, const ColumnMap& map, int plane) {
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    if (item.step < 0 && item.source == source && item.map.half == map.half &&
        item.plane == plane) {
      return static_cast<int>(i);
    }
  }
  Item item;
  item.source = source;
  item.map = map;
  item.plane = plane;
  item.length = items_[source].length / 2;
  items_.push_back(std::move(item));
  return static_cast<int>(items_.size()) - 1;
}

void VectorProgram::place(ScratchPieces& pieces) {
  for (Item& item : items_) item.offset = pieces.add_floats(item.length + kVectorPad);
}

const float* VectorProgram::vector(int number, const char* scratch) const {
  return reinterpret_cast<const float*>(scratch + items_[number].offset);
}

void VectorProgram::run(std::span<const TensorView> tensors, char* scratch, int threads) const {
  for (const Item& item : items_) {
    if (item.step >= 0) {
      run_step(item, tensors, scratch, threads);
      continue;
    }
    const float* source = vector(item.source, scratch);
    float* out = reinterpret_cast<float*>(scratch + item.offset);
    for (int64_t j = 0; j < item.length; ++j) out[j] = source[item.map.at(j, item.plane)];
  }
}

void VectorProgram::run_step(const Item& item, std::span<const TensorView> tensors, char* scratch,
                             int threads) const {
  const Step& s = program_.steps[item.step];
  float* out = reinterpret_cast<float*>(scratch + item.offset);
  const auto operand = [&](int i) -> Source {
    const Item& source = items_[item.operands[i]];
    return {vector(item.operands[i], scratch), 0, source.length == 1 && item.length > 1};
  };
  switch (s.kind()) {
    case StepKind::load_per_row:
    case StepKind::load_per_column:
    case StepKind::load_scalar: {
      const TensorView& stored = tensors[s.tensor()];
      load_vector(stored, out);
      if (s.repeat().is(1)) return;
      for (int64_t j = stored.cols; j < item.length; ++j) out[j] = out[j - stored.cols];
      return;
    }
    case StepKind::constant: *out = static_cast<float>(s.number()); return;
    case StepKind::size: *out = static_cast<float>(s.size().evaluate(sizes_)); return;
    case StepKind::column_index:
      for (int64_t j = 0; j < item.length; ++j) out[j] = static_cast<float>(j);
      return;
    case StepKind::elementwise: {
      Source operands[3];
      for (size_t i = 0; i < item.operands.size(); ++i) operands[i] = operand(static_cast<int>(i));
      return elementwise(s.op(), operands, {out, 0, 1, item.length});
    }
    case StepKind::as_stored: return round_to(s.dtype(), operand(0), {out, 0, 1, item.length});
    case StepKind::transpose_vector:
      std::copy_n(vector(item.operands[0], scratch), item.length, out);
      return;
    case StepKind::reduce_vector: {
      const float* in = vector(item.operands[0], scratch);
      double total = 0;
      for (int64_t j = 0; j < items_[item.operands[0]].length; ++j) total += in[j];
      *out = static_cast<float>(total);
      return;
    }
    case StepKind::combine: return run_combine(s, tensors[s.tensor()], item.length, out, threads);
    case StepKind::store_vector:
      return store_vector(tensors[s.tensor()], vector(item.operands[0], scratch));
    default: throw InternalError("a tile step in a vector program");
  }
}

void VectorProgram::run_combine(const Step& s, const TensorView& partial, int64_t length,
                                float* out, int threads) const {
  const TensorDecl& decl = program_.tensors[s.tensor()];
  const bool by_row = decl.kind == TensorKind::row_partial;
  const int64_t reduced =
      by_row ? decl.shape.cols.evaluate(sizes_) : decl.shape.rows.evaluate(sizes_);
  const int64_t count = partial_spans(reduced);
  const int64_t last = reduced - (count - 1) * kPartialSpan;
  const float* data = static_cast<const float*>(partial.data);
  const int64_t stride = partial.row_stride;
  // Lanes are stacked along rows: [lanes * length, count] by row, [lanes * count, length] by
  // column.
  const int64_t lane_stride = (by_row ? length : count) * stride;
#pragma omp parallel for num_threads(threads) if (length * count > 16384) schedule(static)
  for (int64_t i = 0; i < length; ++i) {
    const float* first = by_row ? data + i * stride : data + i;
    out[i] = combine(s.partial(), first, count, by_row ? 1 : stride, lane_stride, kPartialSpan,
                     last, s.lane());
  }
}

}  // namespace coda::cpu
