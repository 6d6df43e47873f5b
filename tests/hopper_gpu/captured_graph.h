// SPDX-License-Identifier: Apache-2.0
// A CUDA graph of what is enqueued on a stream. The library leaves graphs to its caller, so tests
// make the driver's calls themselves, in the calling thread's context.
#pragma once

#include "hopper/driver_api.h"
#include "hopper/dynamic_library.h"

namespace coda::testing {

class CapturedGraph {
 public:
  // `enqueue` launches on the stream and waits for nothing.
  template <class Enqueue>
  CapturedGraph(hopper::DriverHandle stream, const Enqueue& enqueue) : stream_(stream) {
    const hopper::DynamicLibrary library(hopper::driver_library());
    int (*begin)(void*, int);
    int (*end)(void*, void**);
    int (*instantiate)(void**, void*, unsigned long long);
    library.load(begin, "cuStreamBeginCapture_v2");
    library.load(end, "cuStreamEndCapture");
    library.load(instantiate, "cuGraphInstantiateWithFlags");
    library.load(launch_, "cuGraphLaunch");
    void* graph = nullptr;
    hopper::check_driver(begin(stream, 0), "capturing");
    enqueue();
    hopper::check_driver(end(stream, &graph), "capturing");
    hopper::check_driver(instantiate(&executable_, graph, 0), "making a graph");
  }

  void run() const { hopper::check_driver(launch_(executable_, stream_), "running a graph"); }

 private:
  hopper::DriverHandle stream_;
  int (*launch_)(void*, void*) = nullptr;
  void* executable_ = nullptr;
};

}  // namespace coda::testing
