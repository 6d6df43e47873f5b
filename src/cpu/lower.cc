// SPDX-License-Identifier: Apache-2.0
// Lowers steps to operations on planes: pairs become two planes, and vectors become operands.
#include "cpu/lower.h"

#include <algorithm>
#include <numeric>

#include "coda/error.h"
#include "cpu/fuse_steps.h"
#include "program/step_table.h"

namespace coda::cpu {
namespace {

// Where a tile value is.
struct Value {
  std::array<Place, 2> plane = {};
  int planes = 0;
};

class Lowering {
 public:
  Lowering(const Program& program, const program::TileMap& map, int space, const DimValues& sizes,
           GemmLibrary library, VectorProgram& vectors)
      : program_(program),
        map_(map),
        space_(space),
        sizes_(sizes),
        library_(library),
        vectors_(vectors),
        forms_(fuse_steps(program, map, space)),
        values_(program.steps.size()) {}

  TileProgram run() {
    const TileSpace& space = map_.spaces[space_];
    tile_.rows = space.shape.rows.evaluate(sizes_);
    tile_.cols = space.shape.cols.evaluate(sizes_);
    for (int i : space.steps) {
      if (!map_.on_tile[i]) vectors_.add_step(i);
    }
    for (int i : space.steps) {
      if (map_.on_tile[i]) find_groups(i);
    }
    for (int i : space.steps) {
      if (map_.on_tile[i] && forms_[i].kind != StepForm::Kind::nothing) lower(i);
    }
    return std::move(tile_);
  }

 private:
  const Step& step(int i) const { return program_.steps[i]; }
  int64_t columns(int i) const { return step(i).shape.cols.evaluate(sizes_); }
  // The distance between the members of a pair, for a value of twice the base width; else 0.
  int64_t half(int i) const {
    return map_.pairing[i] == Dim(0) ? 0 : map_.pairing[i].evaluate(sizes_) / 2;
  }
  int planes(int i) const { return half(i) > 0 ? 2 : 1; }

  // How the groups of a narrow value are distributed to tiles. A group of base width, or of whole
  // pair blocks, is a range of base columns; other groups of paired values need whole rows.
  void find_groups(int i) {
    const Step& s = step(i);
    if (!program::sums_groups(s) && !program::repeats_groups(s)) return;
    const int wide = program::sums_groups(s) ? s.operands[0] : i;
    const int64_t group = s.group().evaluate(sizes_);
    if (half(wide) == 0) {
      tile_.column_step = std::lcm(tile_.column_step, group);
    } else if (group % (2 * half(wide)) == 0) {
      tile_.column_step = std::lcm(tile_.column_step, group / 2);
    } else {
      tile_.needs_all_columns = true;
      tile_.widest_plane = std::max(tile_.widest_plane, columns(wide) / group);
    }
  }

  Place new_plane() { return {PlaceKind::strip, next_plane_++}; }

  // Plane `plane` of an operand of step `reader`, broadcast to the reader's class (base, paired,
  // narrow).
  Place operand_plane(int operand, int reader, int plane) {
    if (map_.on_tile[operand]) return values_[operand].plane[plane];
    const Shape& shape = step(operand).shape;
    const int number = vectors_.number_of(operand);
    if (shape.is_scalar()) return {PlaceKind::scalar, number};
    if (shape.is_per_row()) return {PlaceKind::row_vector, number};
    if (half(reader) == 0) return {PlaceKind::column_vector, number};
    return {PlaceKind::column_vector,
            vectors_.add_plane(number, {half(reader), columns(operand)}, plane)};
  }

  // `stored`: the number of columns of the tensor, which a load may repeat.
  ColumnMap memory_map(int i, int64_t stored) const { return {half(i), stored}; }

  void set_narrow(TileOp& op, int i) const {
    if (!map_.grouped[i]) return;
    op.is_narrow = true;
    op.groups = columns(i);
    op.span = tile_.needs_all_columns ? 0 : tile_.cols / columns(i);
  }

  void lower(int i) {
    const Step& s = step(i);
    switch (s.kind()) {
      case StepKind::gemm: return lower_gemm(i);
      case StepKind::load_tile: return lower_load(i);
      case StepKind::elementwise:
      case StepKind::as_stored: return lower_elementwise(i);
      case StepKind::split_pair: {
        values_[i].planes = 1;
        values_[i].plane[0] = values_[s.operands[0]].plane[s.which()];
        return;
      }
      case StepKind::merge_pairs: {
        values_[i].planes = 2;
        for (int w = 0; w < 2; ++w) values_[i].plane[w] = values_[s.operands[w]].plane[0];
        return;
      }
      case StepKind::reduce_group:
      case StepKind::group_abs_max:
      case StepKind::repeat_group: return lower_group(i);
      case StepKind::select_column: return;  // with its store
      case StepKind::store_tile: return lower_store(i);
      case StepKind::store_transposed: return lower_planes(i, TileOpKind::store_transposed);
      case StepKind::abs_max_into: return lower_planes(i, TileOpKind::abs_max_into);
      case StepKind::store_vector: return lower_selection(i);
      case StepKind::row_partial:
      case StepKind::column_partial: return lower_partial(i);
      default: throw InternalError("a vector step in a tile space");
    }
  }

  int add_a(const GemmSegment& segment, DType packed, int64_t k) {
    const AOperand operand{segment.a, segment.transpose_a, packed, k, segment.scales_a};
    const auto found = std::find(tile_.a.begin(), tile_.a.end(), operand);
    if (found != tile_.a.end()) return static_cast<int>(found - tile_.a.begin());
    tile_.a.push_back(operand);
    return static_cast<int>(tile_.a.size()) - 1;
  }

  int add_b(const BOperand& operand) {
    const auto found = std::find(tile_.b.begin(), tile_.b.end(), operand);
    if (found != tile_.b.end()) return static_cast<int>(found - tile_.b.begin());
    tile_.b.push_back(operand);
    return static_cast<int>(tile_.b.size()) - 1;
  }

  void lower_gemm(int i) {
    const Step& s = step(i);
    values_[i].planes = planes(i);
    for (int w = 0; w < planes(i); ++w) {
      PlaneGemm gemm;
      for (const GemmSegment& segment : s.segments()) {
        const TensorDecl& a = program_.tensors[segment.a];
        const TensorDecl& b = program_.tensors[segment.b];
        const int64_t k = (segment.transpose_a ? a.shape.rows : a.shape.cols).evaluate(sizes_);
        const bool narrow =
            a.dtype == DType::bf16 && b.dtype == DType::bf16 && multiplies_bf16(library_);
        const DType packed = narrow ? DType::bf16 : DType::f32;
        gemm.segments.push_back({add_a(segment, packed, k), add_b({segment.b,
                                                                   segment.transpose_b,
                                                                   packed,
                                                                   k,
                                                                   {half(i), columns(i)},
                                                                   w,
                                                                   segment.scales_b})});
      }
      gemm.accumulator = tile_.accumulators++;
      values_[i].plane[w] = {PlaceKind::accumulator, gemm.accumulator};
      tile_.gemms.push_back(std::move(gemm));
    }
  }

  void lower_load(int i) {
    const Step& s = step(i);
    Value& value = values_[i];
    value.planes = planes(i);
    for (int w = 0; w < value.planes; ++w) value.plane[w] = new_plane();
    TileOp op;
    op.tensor = s.tensor();
    op.dtype = program_.tensors[s.tensor()].dtype;
    op.index_tensor = s.row_index();
    op.map = memory_map(i, program_.tensors[s.tensor()].shape.cols.evaluate(sizes_));
    set_narrow(op, i);
    if (op.map.is_interleaved()) {
      op.kind = TileOpKind::load_pairs;
      op.out = value.plane;
      tile_.ops.push_back(op);
      return;
    }
    op.kind = TileOpKind::load;
    for (int w = 0; w < value.planes; ++w) {
      op.plane = w;
      op.out[0] = value.plane[w];
      tile_.ops.push_back(op);
    }
  }

  void lower_store(int i) {
    const Step& s = step(i);
    const Value& value = values_[s.operands[0]];
    TileOp op;
    op.tensor = s.tensor();
    op.dtype = program_.tensors[s.tensor()].dtype;
    op.map = memory_map(i, columns(i));
    set_narrow(op, i);
    if (op.map.is_interleaved()) {
      op.kind = TileOpKind::store_pairs;
      op.in[0] = value.plane[0];
      op.in[1] = value.plane[1];
      tile_.ops.push_back(op);
      return;
    }
    lower_planes(i, TileOpKind::store);
  }

  // An effect on each plane of its operand.
  void lower_planes(int i, TileOpKind kind) {
    const Step& s = step(i);
    const Value& value = values_[s.operands[0]];
    TileOp op;
    op.kind = kind;
    op.tensor = s.tensor();
    op.dtype = program_.tensors[s.tensor()].dtype;
    op.map = memory_map(i, columns(i));
    set_narrow(op, i);
    for (int w = 0; w < value.planes; ++w) {
      op.plane = w;
      op.in[0] = value.plane[w];
      tile_.ops.push_back(op);
    }
  }

  void lower_elementwise(int i) {
    const Step& s = step(i);
    const StepForm& form = forms_[i];
    if (form.kind == StepForm::Kind::operand) {
      values_[i] = values_[form.operands[0]];
      return;
    }
    TileOp op;
    op.kind = program::is_rounding(s) ? TileOpKind::round : TileOpKind::elementwise;
    op.op = s.op();
    op.dtype = s.dtype();
    set_narrow(op, i);
    std::vector<int> operands = s.operands;
    if (form.kind == StepForm::Kind::sum) {
      op.kind = TileOpKind::sum;
      op.arithmetic = form.arithmetic;
      operands = form.operands;
    }
    values_[i].planes = planes(i);
    for (int w = 0; w < planes(i); ++w) {
      for (size_t k = 0; k < operands.size(); ++k) op.in[k] = operand_plane(operands[k], i, w);
      op.out[0] = values_[i].plane[w] = new_plane();
      tile_.ops.push_back(op);
    }
  }

  void lower_group(int i) {
    const Step& s = step(i);
    const bool reduce = program::sums_groups(s);
    const int wide = reduce ? s.operands[0] : i;
    const int narrow = reduce ? i : s.operands[0];
    TileOp op;
    op.kind = reduce ? TileOpKind::reduce_group : TileOpKind::repeat_group;
    if (program::takes_largest_of_groups(s)) op.partial = PartialKind::abs_max;
    op.group = s.group().evaluate(sizes_);
    op.map = {half(wide), columns(wide)};
    op.groups = columns(narrow);
    op.span = tile_.needs_all_columns ? 0 : tile_.cols / op.groups;
    values_[i].planes = planes(i);
    if (reduce) {
      for (int w = 0; w < planes(wide); ++w) op.in[w] = operand_plane(wide, wide, w);
      op.out[0] = values_[i].plane[0] = new_plane();
      tile_.ops.push_back(op);
      return;
    }
    op.in[0] = operand_plane(narrow, narrow, 0);
    for (int w = 0; w < planes(i); ++w) {
      op.plane = w;
      op.out[0] = values_[i].plane[w] = new_plane();
      tile_.ops.push_back(op);
    }
  }

  void lower_selection(int i) {
    const Step& select = step(step(i).operands[0]);
    invariant(program::is_selection(select), "a tile space stores a vector that is no selection");
    const int source = select.operands[0];
    TileOp op;
    op.kind = TileOpKind::select_column;
    op.tensor = step(i).tensor();
    op.index_tensor = step(select.operands[1]).tensor();
    op.map = {half(source), columns(source)};
    for (int w = 0; w < planes(source); ++w) op.in[w] = values_[source].plane[w];
    tile_.ops.push_back(op);
  }

  void lower_partial(int i) {
    const Step& s = step(i);
    const int source = s.operands[0];
    TileOp op;
    op.partial = s.partial();
    op.tensor = s.tensor();
    op.map = {half(source), columns(source)};
    if (program::is_row_partial(s)) {
      op.kind = TileOpKind::row_partial;
      for (int w = 0; w < planes(source); ++w) op.in[w] = values_[source].plane[w];
      tile_.ops.push_back(op);
      return;
    }
    op.kind = TileOpKind::column_partial;
    for (int w = 0; w < planes(source); ++w) {
      op.plane = w;
      op.in[0] = values_[source].plane[w];
      op.state = tile_.states++;
      tile_.ops.push_back(op);
    }
  }

  const Program& program_;
  const program::TileMap& map_;
  const int space_;
  const DimValues& sizes_;
  const GemmLibrary library_;
  VectorProgram& vectors_;
  const std::vector<StepForm> forms_;
  std::vector<Value> values_;
  int next_plane_ = 0;
  TileProgram tile_;
};

}  // namespace

TileProgram lower_tile_space(const Program& program, const program::TileMap& map, int space,
                             const DimValues& sizes, GemmLibrary library, VectorProgram& vectors) {
  return Lowering(program, map, space, sizes, library, vectors).run();
}

}  // namespace coda::cpu
