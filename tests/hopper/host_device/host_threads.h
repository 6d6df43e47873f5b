// SPDX-License-Identifier: Apache-2.0
// What a kernel that was compiled for the CPU asks of the test that runs it.
#pragma once

struct HostThreads {
  unsigned thread = 0;
  unsigned threads = 0;
  unsigned block = 0;
  unsigned blocks = 0;
  float (*exchange)(float value, unsigned mask) = nullptr;
  void (*synchronize)() = nullptr;
};
