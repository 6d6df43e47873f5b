// SPDX-License-Identifier: Apache-2.0
// Where the values of a tile space lie, followed from memory through a stage to the accumulators,
// and from the staging ring to memory, for every tile, layout, cluster and way of dividing a tile:
// parts, natural order, planes of wide tensors.
#include "device/layout/space.cuh"

#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "device/layout/column_lanes.cuh"
#include "device/layout/fragment.cuh"
#include "device/layout/tile_order.cuh"
#include "tests/gpu/table_configs.h"

namespace coda::device {
namespace {

std::string describe(const GemmConfig& config, const EpilogueTraits& shape) {
  return std::to_string(config.tile_m) + "x" + std::to_string(config.tile_n) + " cluster " +
         std::to_string(config.cluster_m) + "x" + std::to_string(config.cluster_n) + " layout " +
         std::to_string(static_cast<int>(config.layout)) + " parts " + std::to_string(shape.parts) +
         " half " + std::to_string(shape.natural_half);
}

// Which column of op(B) an element of a stage was loaded from.
struct Source {
  u32 part = ~0u;
  u32 column = 0;
  u32 k = 0;

  bool operator==(const Source&) const = default;
};

// What the boxes of all CTAs that share a B tile write into a stage, before the swizzle: [element].
std::vector<Source> loaded_stage(const GemmConfig& config, const EpilogueTraits& shape,
                                 u32 column) {
  const Major major = config.major_b();
  const u32 part_columns = config.tile_n / shape.loaded_parts();
  const OperandBox box = box_b(config, shape);
  std::vector<Source> stage(config.stage_bytes_b() / kElementBytes);
  for (u32 part = 0; part < shape.loaded_parts(); ++part) {
    for (u32 slice = 0; slice < config.cluster_m; ++slice) {
      for (u32 index = 0; index < box_count(major, part_columns); ++index) {
        const BoxPlace place = box_place(major, part_columns, config.cluster_m, slice, index);
        for (u32 outer = 0; outer < box.outer; ++outer) {
          for (u32 k = 0; k < box.k; ++k) {
            const u32 row = major == Major::k ? outer : k;
            const u32 inner = major == Major::k ? k : outer;
            const u32 offset = part * part_columns * kBlockK * kElementBytes + place.offset +
                               row * kSwizzleBytes + inner * kElementBytes;
            Source& element = stage.at(offset / kElementBytes);
            EXPECT_EQ(element.part, ~0u) << "written twice";
            element = {part, operand_column(shape, column) + place.outer + outer, place.k + k};
          }
        }
      }
    }
  }
  return stage;
}

// Where wgmma reads element (column of the tile, k): the layout that wgmma_descriptor_test checks.
u32 stage_offset(Major major, u32 column, u32 k) {
  return major == Major::k ? column * kSwizzleBytes + k * kElementBytes
                           : column / kOuterPanel * kOuterPanelBytes + k * kSwizzleBytes +
                                 column % kOuterPanel * kElementBytes;
}

TEST(Space, EachAccumulatorIsTheProductWithItsColumnOfItsPart) {
  for (const GemmConfig& config : valid_configs()) {
    for (const EpilogueTraits& shape : valid_shapes(config)) {
      SCOPED_TRACE(describe(config, shape));
      const u32 width = base_columns(config, shape);
      const u32 first = 3 * width;  // a tile's first base column
      const std::vector<Source> stage = loaded_stage(config, shape, first);
      std::set<u32> met;
      for (u32 part = 0; part < shape.parts; ++part) {
        for (u32 fragment = 0; fragment < width; fragment += kFragmentColumns) {
          for (u32 i = 0; i < kFragmentColumns; ++i) {
            const u32 accumulator = accumulator_column(config, shape, part, fragment) + i;
            ASSERT_TRUE(met.insert(accumulator).second);
            const u32 base = first + fragment + i;
            for (const u32 k : {0u, 17u, kBlockK - 1}) {
              const u32 offset = stage_offset(config.major_b(), accumulator, k);
              const Source wanted = shape.natural_half != 0
                                        ? Source{0, wide_column(shape.natural_half, part, base), k}
                                        : Source{part, base, k};
              ASSERT_EQ(stage.at(offset / kElementBytes), wanted);
            }
          }
        }
      }
      ASSERT_EQ(met.size(), config.tile_n);
    }
  }
}

TEST(Space, WideColumnsVisitEachNaturalColumnOnce) {
  for (const u32 half : {1u, 2u, 8u, 16u, 40u, 64u, 128u, 640u}) {
    const u32 base = 1280;
    std::vector<int> met(2 * base);
    for (u32 column = 0; column < base; ++column) {
      for (u32 member = 0; member < 2; ++member) {
        const u32 natural = wide_column(half, member, column);
        ++met.at(natural);
        // The members of a pair are half apart, in one group.
        EXPECT_EQ(wide_column(half, 0, column) + member * half, natural);
        EXPECT_EQ(natural / (2 * half), column / half);
      }
    }
    for (const int count : met) ASSERT_EQ(count, 1);
  }
}

// A fragment of a member, put into its plane and stored by that plane's box, lands at its columns.
TEST(Space, PlanesOfWideTensorsLandAtTheirNaturalColumns) {
  for (const u32 half : {16u, 32u, 64u, 128u, 192u}) {
    for (u32 first_plane = 0; first_plane < 3; ++first_plane) {
      for (u32 base = 0; base < 4 * half; base += kSubTileColumns) {
        if (base % smaller(half, kSubTileColumns) != 0) continue;
        std::set<std::pair<u32, u32>> places;
        for (u32 member = 0; member < 2; ++member) {
          for (u32 fragment = 0; fragment < kFragments; ++fragment) {
            const PlanePlace place =
                plane_place(half, 1u << first_plane, first_plane + member, fragment);
            ASSERT_GE(place.plane, first_plane);
            ASSERT_LE(place.plane, first_plane + 1);
            ASSERT_LT(place.fragment, kFragments);
            places.emplace(place.plane, place.fragment);
            const u32 box = plane_column(half, place.plane - first_plane, base);
            const u32 wanted = wide_column(half, member, base + fragment * kFragmentColumns);
            ASSERT_EQ(box + place.fragment * kFragmentColumns, wanted) << half << " at " << base;
          }
        }
        EXPECT_EQ(places.size(), 2 * kFragments);
      }
    }
  }
}

TEST(Space, NarrowPlanesStayInPlace) {
  for (const u32 half : {0u, 16u, 32u, 64u}) {
    for (u32 plane = 0; plane < 4; ++plane) {
      for (u32 fragment = 0; fragment < kFragments; ++fragment) {
        // Plane 1 of a tensor that planes 2 and 3 follow; plane 0 before one in planes 1 and 2.
        const u32 wide = plane <= 1 ? 1u << (plane + 1) : 1u << (plane - 2);
        EXPECT_EQ(plane_place(half, wide, plane, fragment), (PlanePlace{plane, fragment}));
      }
    }
  }
}

bool is_well_formed(u32 planes, u32 wide) {
  for (u32 plane = 0; plane < 8; ++plane) {
    if ((wide >> plane & 1) == 0) continue;
    if (plane + 2 > planes || (wide >> (plane + 1) & 1) != 0) return false;
  }
  return true;
}

// Stores go into the shared memory of loads, fragment after fragment: what a store overwrites must
// have been read. All combinations of up to four planes each, narrow or wide.
TEST(Space, NoStoreOverwritesALoadThatIsStillToBeRead) {
  const GemmConfig config{.tile_n = 256, .schedule = Schedule::cooperative};
  int valid = 0;
  for (const u32 half : {16u, 32u, 64u, 128u}) {
    for (u32 loads = 0; loads <= 4; ++loads) {
      for (u32 stores = 0; stores <= 4; ++stores) {
        for (u32 wide_loads = 0; wide_loads < 8; ++wide_loads) {
          for (u32 wide_stores = 0; wide_stores < 8; ++wide_stores) {
            if (!is_well_formed(loads, wide_loads)) continue;
            if (!is_well_formed(stores, wide_stores)) continue;
            const EpilogueTraits shape{.parts = 2,
                                       .natural_half = half,
                                       .loads = loads,
                                       .stores = stores,
                                       .wide_loads = wide_loads,
                                       .wide_stores = wide_stores};
            std::set<std::pair<u32, u32>> written;
            bool hazard = false;
            for (u32 fragment = 0; fragment < kFragments; ++fragment) {
              for (u32 plane = 0; plane < loads; ++plane) {
                const PlanePlace place = plane_place(half, wide_loads, plane, fragment);
                hazard = hazard || written.contains({place.plane, place.fragment});
              }
              for (u32 plane = 0; plane < stores; ++plane) {
                const PlanePlace place = plane_place(half, wide_stores, plane, fragment);
                ASSERT_TRUE(written.emplace(place.plane, place.fragment).second);
              }
            }
            if (is_valid(config, shape)) {
              ++valid;
              ASSERT_FALSE(hazard)
                  << loads << " " << stores << " " << wide_loads << " " << wide_stores;
            } else {
              ASSERT_LT(half, kSubTileColumns) << "refused without need";
            }
          }
        }
      }
    }
  }
  EXPECT_GT(valid, 100);
}

// A warp's bytes lie where another's words do, so no plane of words shares memory with one of
// bytes.
TEST(Space, NoPlaneSharesMemoryWithLoadsOfBytes) {
  for (u32 words = 0; words <= 3; ++words) {
    for (u32 byte_loads = 0; byte_loads <= 3; ++byte_loads) {
      for (u32 stores = 0; stores <= 4; ++stores) {
        for (u32 orders = 0; orders < 16; ++orders) {
          const EpilogueTraits shape{.loads = words + byte_loads,
                                     .byte_loads = byte_loads,
                                     .stores = stores,
                                     .bytes = 2,
                                     .byte_rows = orders % 4,
                                     .byte_columns = orders / 4};
          std::set<u32> halves;  // of planes
          const auto takes = [&](u32 half) { return halves.insert(half).second; };
          for (u32 load = words; load < shape.loads; ++load)
            EXPECT_TRUE(takes(shape.load_offset(load, kSubTileBytes) / kBytePlaneHalf));
          for (u32 store = 0; store < stores; ++store) {
            EXPECT_TRUE(takes(2 * shape.store_plane(store)));
            EXPECT_TRUE(takes(2 * shape.store_plane(store) + 1));
            // And it lies in a load of words, or with what is only stored.
            EXPECT_TRUE(store < words ? shape.store_plane(store) == store
                                      : shape.store_plane(store) >= shape.load_planes());
          }
          for (const u32 byte : {0u, 1u}) {
            const u32 first = 2 * shape.first_byte_plane();
            const bool has_rows = (shape.byte_rows >> byte & 1) != 0;
            const bool has_columns = (shape.byte_columns >> byte & 1) != 0;
            EXPECT_TRUE(!has_rows || takes(first + shape.byte_half(byte, false)));
            EXPECT_TRUE(!has_columns || takes(first + shape.byte_half(byte, true)));
          }
          for (u32 half = 0; half < 2 * words; ++half) takes(half);
          // The half behind an odd load or store of bytes is free.
          EXPECT_EQ(halves.size() + byte_loads % 2 + shape.byte_halves() % 2, 2 * shape.planes());
          EXPECT_TRUE(halves.empty() || *halves.rbegin() < 2 * shape.planes());
        }
      }
    }
  }
}

TEST(Space, RefusesWhatCannotBe) {
  const GemmConfig config{.tile_n = 192};
  EXPECT_TRUE(is_valid(config, EpilogueTraits{}));
  EXPECT_TRUE(is_valid(config, {.parts = 3}));
  EXPECT_TRUE(is_valid(config, {.parts = 2}));  // 96 base columns: three sub-tiles of 32
  EXPECT_FALSE(is_valid(config, {.parts = 2, .column_partials = 1}));  // these are of 64
  EXPECT_FALSE(is_valid(config, {.parts = 2, .natural_half = 32}));
  EXPECT_FALSE(is_valid(config, {.parts = 2, .keeps_tables = true}));
  EXPECT_FALSE(
      is_valid({.tile_n = 192, .layout = OperandLayout::nn}, {.parts = 2}));  // boxes of 64
  EXPECT_FALSE(is_valid(config, {.parts = 4}));                               // 48
  EXPECT_FALSE(is_valid({.tile_n = 64}, {.parts = 2}));  // one of 32: not served
  EXPECT_FALSE(is_valid({.tile_n = 128}, {.parts = 2, .natural_half = 128}));  // half a pair group
  EXPECT_FALSE(is_valid({.tile_n = 128}, {.parts = 2, .natural_half = 8}));    // half a fragment
  EXPECT_FALSE(is_valid({.tile_n = 128}, {.parts = 1, .natural_half = 64}));
}

TEST(Space, PositionsNumberTheirPartials) {
  for (u32 thread = 0; thread < kWarpgroupSize; ++thread) {
    const FragmentPosition at{.row = 5 * 64 + fragment_row(thread, 0),
                              .column = 7 * 64 + fragment_column(thread, 0)};
    EXPECT_EQ(at.partial_row(), 5u);
    EXPECT_EQ(at.partial_column(), 7u);
    // The thread's other row and columns are in the same sub-tile, also in its last fragment.
    EXPECT_EQ((at.row + 8) / 64, 5u);
    EXPECT_EQ((at.column + 3 * kFragmentColumns + 9) / 64, 7u);
  }
}

// Column partials: after the exchange a warp's 32 lanes hold 64 columns, two each, all different,
// and what they write together falls into 32 banks.
TEST(ColumnPartial, LanesKeepEachColumnOnce) {
  std::set<u32> columns;
  for (u32 i = 0; i < 2; ++i) {
    std::set<u32> banks;
    for (u32 lane = 0; lane < kWarpSize; ++lane) {
      const u32 own = column_of_lane(lane);
      const std::set<u32> held = {fragment_column(lane, 0), fragment_column(lane, 1),
                                  fragment_column(lane, 4), fragment_column(lane, 5)};
      EXPECT_TRUE(held.contains(own)) << "a column that the lane never had";
      const u32 column = fragment_of_lane(lane, i) * kFragmentColumns + own;
      columns.insert(column);
      banks.insert(column % 32);
    }
    EXPECT_EQ(banks.size(), 32u);
  }
  EXPECT_EQ(columns.size(), kSubTileColumns);
}

// The exchange itself, on a host's model of a warp: lanes 16, 8 and 4 apart, as the device code
// pairs them, add up every row of each column exactly once.
TEST(ColumnPartial, ExchangeReducesEveryRowOnce) {
  // [lane][column of the thread's four] -> rows that were added, as bits.
  std::vector<std::vector<u32>> rows(kWarpSize, std::vector<u32>(4));
  std::vector<std::vector<u32>> column(kWarpSize, std::vector<u32>(4));
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    for (u32 i = 0; i < 4; ++i) {
      rows[lane][i] = 1u << fragment_row(lane, 0) | 1u << fragment_row(lane, 2);
      column[lane][i] = fragment_column(lane, i / 2 * 4 + i % 2);
    }
  }
  const auto halve = [&](u32 mask, u32 kept) {
    const auto before_rows = rows;
    const auto before_columns = column;
    for (u32 lane = 0; lane < kWarpSize; ++lane) {
      const bool upper = (lane & mask) != 0;
      for (u32 i = 0; i < kept; ++i) {
        const u32 own = upper ? kept + i : i;
        ASSERT_EQ(before_columns[lane][own], before_columns[lane ^ mask][own]);
        ASSERT_EQ(before_rows[lane][own] & before_rows[lane ^ mask][own], 0u) << "added twice";
        rows[lane][i] = before_rows[lane][own] | before_rows[lane ^ mask][own];
        column[lane][i] = before_columns[lane][own];
      }
    }
  };
  halve(kColumnExchange[0], 2);
  halve(kColumnExchange[1], 1);
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    const u32 other = lane ^ kColumnExchange[2];
    EXPECT_EQ(column[lane][0], column[other][0]);
    EXPECT_EQ(rows[lane][0] & rows[other][0], 0u);
    EXPECT_EQ(rows[lane][0] | rows[other][0], 0xffffu) << "all 16 rows of the warp";
    EXPECT_EQ(column[lane][0], column_of_lane(lane));
  }
}

}  // namespace
}  // namespace coda::device
