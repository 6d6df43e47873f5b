// SPDX-License-Identifier: Apache-2.0
// A CUDA graph of what is enqueued on a stream, in the calling thread's context.
#pragma once

#include <functional>

#include "gpu/launch/driver_api.h"

namespace coda::gpu {

class CapturedGraph {
 public:
  // `enqueue` launches on the stream and waits for nothing; what it launches has been run before
  // with the same tensors.
  CapturedGraph(DriverHandle stream, const std::function<void()>& enqueue);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  // Enqueues all of it on the stream, which may be another than it was captured on.
  void run(DriverHandle stream) const;

 private:
  DriverHandle executable_ = nullptr;
};

}  // namespace coda::gpu
