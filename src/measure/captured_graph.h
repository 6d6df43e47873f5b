// SPDX-License-Identifier: Apache-2.0
// A CUDA graph of what is enqueued on a stream. The library leaves graphs to its caller, so this
// makes the driver's calls itself, in the calling thread's context.
#pragma once

#include <functional>

#include "hopper/launch/driver_api.h"

namespace coda::measure {

class CapturedGraph {
 public:
  // `enqueue` launches on the stream and waits for nothing; what it launches has been run before
  // with the same tensors.
  CapturedGraph(hopper::DriverHandle stream, const std::function<void()>& enqueue);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  // Enqueues all of it on the stream.
  void run() const;

 private:
  hopper::DriverHandle stream_;
  hopper::DriverHandle executable_ = nullptr;
};

}  // namespace coda::measure
