// SPDX-License-Identifier: Apache-2.0
// Every mainloop configuration that the index tests walk over: all tiles, clusters, stages and
// layouts that are valid, also those that no table times.
#pragma once

#include <vector>

#include "device/config.cuh"

namespace coda::device {

inline std::vector<GemmConfig> valid_configs() {
  std::vector<GemmConfig> configs;
  for (const Schedule schedule : {Schedule::ping_pong, Schedule::cooperative}) {
    for (u32 tile_m = 64; tile_m <= 256; tile_m += 64) {
      for (u32 tile_n = 64; tile_n <= 256; tile_n += 64) {
        for (u32 cluster = 0; cluster < 9; ++cluster) {
          for (const Layout layout : {Layout::tn, Layout::nn, Layout::nt}) {
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

}  // namespace coda::device
