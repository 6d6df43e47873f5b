// SPDX-License-Identifier: Apache-2.0
// Every mainloop configuration and every division of its tile that the index tests walk over: all
// tiles, clusters, stages and layouts that are valid, also those that no table times.
#pragma once

#include <vector>

#include "device/layout/space.cuh"

namespace coda::device {

inline std::vector<GemmConfig> valid_configs() {
  std::vector<GemmConfig> configs;
  for (const Schedule schedule : {Schedule::ping_pong, Schedule::cooperative}) {
    for (u32 tile_m = 64; tile_m <= 256; tile_m += 64) {
      for (u32 tile_n = 64; tile_n <= 256; tile_n += 64) {
        for (u32 cluster = 0; cluster < 9; ++cluster) {
          for (const OperandLayout layout :
               {OperandLayout::tn, OperandLayout::nn, OperandLayout::nt, OperandLayout::tt}) {
            const u32 sizes[] = {1, 2, 4};
            const GemmConfig config{.tile_m = tile_m,
                                    .tile_n = tile_n,
                                    .cluster_m = sizes[cluster % 3],
                                    .cluster_n = sizes[cluster / 3],
                                    .schedule = schedule,
                                    .layout = layout};
            if (is_valid(config)) configs.push_back(config);
          }
        }
      }
    }
  }
  return configs;
}

// The ways in which a tile's columns are divided among accumulators: narrow, parts, natural order.
inline std::vector<EpilogueTraits> valid_shapes(const GemmConfig& config) {
  std::vector<EpilogueTraits> shapes;
  for (u32 parts = 1; parts <= 4; ++parts) {
    for (const u32 half : {0u, 8u, 16u, 32u, 48u, 64u, 80u, 96u, 128u}) {
      const EpilogueTraits shape{.parts = parts, .natural_half = half};
      if (is_valid(config, shape)) shapes.push_back(shape);
    }
  }
  return shapes;
}

}  // namespace coda::device
