// SPDX-License-Identifier: Apache-2.0
// What a kernel that was compiled for the CPU asks of the test that runs it.
#pragma once

struct HostThreads {
  unsigned thread = 0;
  unsigned threads = 0;
  unsigned block = 0;
  unsigned blocks = 0;
  unsigned cluster = 1;  // blocks of a cluster
  unsigned steps = 0;    // of anything that threads wait for
  // Lets other threads run until *place is no longer `value`.
  void (*wait_while)(const unsigned* place, unsigned value) = nullptr;
};
