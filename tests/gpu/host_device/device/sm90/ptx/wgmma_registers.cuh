// SPDX-License-Identifier: Apache-2.0
// device/sm90/ptx/wgmma_registers.cuh on a CPU: the lanes of a quad exchange their fragments.
#pragma once

#include "device/sm90/ptx/wgmma.cuh"

namespace coda::device {

template <u32 kN, Element kElement>
void wgmma_of_registers(float (&d)[kN / 2], const u32 (&a)[4], u64 b) {
  host_products().back().push_back([d = &d[0], a = &a[0], b](u32 number) {
    const u32 lane = thread_index() % kWarpSize;
    float left[2][kWgmmaK];
    for (u32 i = 0; i < 4; ++i) {  // rows alternate, columns follow
      with_lanes(a[i], [&](auto of_lane) {
        for (u32 quad = 0; quad < 4; ++quad) {
          float* const pair = &left[i % 2][i / 2 * 8 + 2 * quad];
          unpack<kElement>(of_lane(lane / 4 * 4 + quad), pair[0], pair[1]);
        }
        return 0;
      });
    }
    add_host_product<kN>(d, left, host_right<kN, kElement, Major::outer>(number, b));
  });
}

template <u32 kSteps>
void pin_registers(u32 (&)[kSteps][4]) {}

}  // namespace coda::device
