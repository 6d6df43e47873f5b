// SPDX-License-Identifier: Apache-2.0
// Strip planes that values share: no value is overwritten before its last read, for random
// programs, and a line of elementwise operations needs one plane.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cpu/tile_program.h"

namespace coda::cpu {
namespace {

TileOp operation(TileOpKind kind, const std::vector<int>& in, const std::vector<int>& out) {
  TileOp op;
  op.kind = kind;
  for (size_t k = 0; k < in.size(); ++k) op.in[k] = {PlaceKind::strip, in[k]};
  for (size_t k = 0; k < out.size(); ++k) op.out[k] = {PlaceKind::strip, out[k]};
  return op;
}

TEST(StripPlanes, NoValueIsOverwrittenBeforeItsLastRead) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    TileProgram program;
    int values = 0;
    for (int i = 0; i < 20; ++i) {
      std::vector<int> in;
      while (values > 0 && in.size() < 3 && random() % 4 != 0)
        in.push_back(static_cast<int>(random() % values));
      const int kind = static_cast<int>(random() % 4);
      if (kind == 0) {
        program.ops.push_back(operation(TileOpKind::load_pairs, {}, {values, values + 1}));
        values += 2;
      } else if (kind == 1 && !in.empty()) {
        program.ops.push_back(operation(TileOpKind::store, {in[0]}, {}));
      } else {
        const auto op = kind == 2 ? TileOpKind::elementwise : TileOpKind::reduce_group;
        program.ops.push_back(operation(op, in, {values++}));
      }
    }
    const std::vector<TileOp> before = program.ops;
    std::vector<int> held(static_cast<size_t>(share_strip_planes(program)), -1);
    for (size_t i = 0; i < before.size(); ++i) {
      const TileOp& op = program.ops[i];
      for (size_t k = 0; k < op.in.size(); ++k) {
        if (op.in[k].kind != PlaceKind::strip) continue;
        ASSERT_EQ(held[op.in[k].index], before[i].in[k].index) << "operation " << i;
      }
      for (size_t k = 0; k < op.out.size(); ++k) {
        if (op.out[k].kind != PlaceKind::strip) continue;
        // Only an elementwise operation reads an element before it writes it.
        for (const Place& in : op.in)
          ASSERT_TRUE(in != op.out[k] || op.kind == TileOpKind::elementwise) << "operation " << i;
        held[op.out[k].index] = before[i].out[k].index;
      }
      ASSERT_TRUE(op.out[1].kind == PlaceKind::none || op.out[0] != op.out[1]);
    }
  }
}

TEST(StripPlanes, ALineOfElementwiseOperationsNeedsOne) {
  TileProgram program;
  program.ops.push_back(operation(TileOpKind::load, {}, {0}));
  for (int i = 0; i < 9; ++i)
    program.ops.push_back(operation(TileOpKind::elementwise, {i, i}, {i + 1}));
  EXPECT_EQ(share_strip_planes(program), 1);
}

}  // namespace
}  // namespace coda::cpu
