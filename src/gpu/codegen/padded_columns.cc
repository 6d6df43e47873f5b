// SPDX-License-Identifier: Apache-2.0
// A step allows padding if each of its columns depends only on the same column of its operands.
#include "gpu/codegen/padded_columns.h"

#include <algorithm>

#include "base/rounding.h"
#include "device/tiles/tile_position.cuh"
#include "program/step_table.h"

namespace coda::gpu {

int64_t columns_with_padding(const ProgramSizes& sizes, const TileSpace& space) {
  const int64_t columns = sizes.size(space.shape.cols);
  const int64_t whole = round_up(columns, static_cast<int64_t>(device::kThreadColumns));
  const auto is_apart = [&](int i) {
    const Step& s = sizes.step(i);
    switch (s.kind()) {
      case StepKind::load_tile:
        return sizes.stride(s.tensor()) == whole && s.row_index() < 0 && s.repeat().is(1);
      case StepKind::store_tile: return sizes.stride(s.tensor()) == whole;
      case StepKind::elementwise: return !program::applies(s, Elementwise::random);
      case StepKind::load_per_row:
      case StepKind::load_scalar:
      case StepKind::constant:
      case StepKind::column_index:
      case StepKind::as_stored: return true;
      default: return false;
    }
  };
  const bool are_apart =
      sizes.options().owns_padding && std::all_of(space.steps.begin(), space.steps.end(), is_apart);
  return are_apart ? whole : columns;
}

}  // namespace coda::gpu
