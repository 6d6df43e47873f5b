// SPDX-License-Identifier: Apache-2.0
// device/sm90/mainloop.cuh on a CPU: the producer multiplies a whole tile, by way of the same
// descriptors, and consumers take its accumulators.
#pragma once

#include "coda/float16.h"
#include "device/layout/shared_layout.cuh"
#include "device/layout/tile_order.cuh"
#include "device/sm90/pipeline.cuh"
#include "device/sm90/ptx/tma.cuh"
#include "device/values/unrolled.cuh"

namespace coda::device {

using HostTiles = std::vector<std::vector<float>>;  // of a block, in their order
inline HostTiles host_tiles_of[kMostHostCtas];
inline HostTiles& host_tiles() { return host_tiles_of[host_rank()]; }

template <GemmConfig kConfig>
struct Mainloop {
  struct State {
    u32 tile = 0;

    void advance_by(u32) { ++tile; }  // over a tile
  };
  using Accumulators = float[kConfig.blocks_m()][kConfig.tile_n / 2];

  SharedAddress stages_a;
  SharedAddress stages_b;
  SharedAddress full;
  SharedAddress empty;

  void init_barriers() const { host_tiles().clear(); }

  template <class Space, class Arguments>
  void load(const Arguments& arguments, TileCoord tile, u32, State&) const {
    constexpr u32 kParts = Space::kTraits.loaded_parts();
    constexpr u32 kPartColumns = kConfig.tile_n / kParts;
    constexpr u32 kTile = kConfig.tile_m * kConfig.tile_n;
    // Whole sums; of operands with scales those of each K block, one behind the other.
    std::vector<float> result;
    for (u32 segment = 0; segment < Space::kTraits.segments; ++segment) {
      const u32 depth = Space::k_blocks(arguments, segment) * kConfig.block_k();
      const u32 summed = kConfig.has_scales ? kConfig.block_k() : depth;
      const size_t first = kConfig.has_scales ? result.size() : 0;
      result.resize(first + (kConfig.has_scales ? depth / summed : 1) * kTile);
      const std::vector<float> a = operand<kConfig.element>(
          Space::a(arguments, segment), kConfig.major_a(), tile.m, kConfig.tile_m, depth);
      for (u32 part = 0; part < kParts; ++part) {
        const std::vector<float> b =
            operand<kConfig.element_b>(Space::b(arguments, segment, part), kConfig.major_b(),
                                       operand_column(Space::kTraits, tile.n), kPartColumns, depth);
        for (u32 m = 0; m < kConfig.tile_m; ++m) {
          for (u32 n = 0; n < kPartColumns; ++n) {
            float* sums = &result[first + m * kConfig.tile_n + part * kPartColumns + n];
            for (u32 k = 0; k < depth; ++k)
              sums[k / summed * kTile] += a[m * depth + k] * b[n * depth + k];
          }
        }
      }
    }
    host_tiles().push_back(std::move(result));
    ++host_threads->steps;
  }

  template <class Space, class Arguments>
  static u32 k_blocks(const Arguments& arguments) {
    return Space::k_blocks(arguments, 0);
  }

  template <u32 kSteps, class Begun, class Issued, class Scales>
  void multiply(u32, u32 warpgroup_row, u32, State& state, Accumulators& accumulators, Begun begun,
                Issued issued, Scales scales) const {
    unrolled<kSteps>(begun);
    issued();
    while (host_tiles().size() <= state.tile) {
      host_threads->wait_while(&host_threads->steps, host_threads->steps);
    }
    const u32 thread = thread_index() % kWarpgroupSize;
    const std::vector<float>& sums = host_tiles()[state.tile];
    constexpr u32 kTile = kConfig.tile_m * kConfig.tile_n;
    for (u32 block = 0; block < sums.size() / kTile; ++block) {
      const auto own = scales(block);
      for (u32 m = 0; m < kConfig.blocks_m(); ++m) {
        for (u32 i = 0; i < kConfig.tile_n / 2; ++i) {
          const u32 row = warpgroup_row + m * kWgmmaM + fragment_row(thread, i);
          float x = sums[block * kTile + row * kConfig.tile_n + fragment_column(thread, i)];
          if constexpr (kConfig.has_scales) x *= own.of(m, i);
          accumulators[m][i] = (block == 0 ? 0.0f : accumulators[m][i]) + x;
        }
      }
    }
    ++state.tile;
  }

 private:
  // [outer, k], zero outside of the descriptor's rectangle.
  template <Element kElement>
  static std::vector<float> operand(const TensorMap* map, Major major, u32 first, u32 outer,
                                    u32 depth) {
    const HostMap& m = host_map(map);
    std::vector<float> values(outer * depth);
    for (u32 o = 0; o < outer; ++o) {
      for (u32 k = 0; k < depth; ++k) {
        const long long row = major == Major::k ? static_cast<long long>(first) + o : k;
        const long long column = major == Major::k ? k : static_cast<long long>(first) + o;
        if (row >= m.rows || column >= m.columns) continue;
        values[o * depth + k] = load_element<kElement>(reinterpret_cast<u64>(m.first),
                                                       static_cast<u64>(row * m.stride + column));
      }
    }
    return values;
  }
};

}  // namespace coda::device
