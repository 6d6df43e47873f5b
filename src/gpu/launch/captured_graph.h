// SPDX-License-Identifier: Apache-2.0
// A CUDA graph captured from the work on a stream.
#pragma once

#include <functional>

#include "gpu/launch/driver_api.h"

namespace coda::gpu {

class CapturedGraph {
 public:
  // `enqueue` launches work on the stream and must not wait. The same work must have run before
  // with the same tensors.
  CapturedGraph(DriverHandle stream, const std::function<void()>& enqueue);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  // Enqueues the graph on a stream, which may differ from the captured one.
  void run(DriverHandle stream) const;

 private:
  DriverHandle executable_ = nullptr;
};

}  // namespace coda::gpu
