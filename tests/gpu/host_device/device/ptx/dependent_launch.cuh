// SPDX-License-Identifier: Apache-2.0
// device/ptx/dependent_launch.cuh on a CPU: one launch ends before the next begins.
#pragma once

namespace coda::device {

inline void launch_dependents() {}
inline void wait_for_predecessor() {}

}  // namespace coda::device
