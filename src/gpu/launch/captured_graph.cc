// SPDX-License-Identifier: Apache-2.0
// Capture is limited to the calling thread, so other threads may use the GPU meanwhile.
#include "gpu/launch/captured_graph.h"

namespace coda::gpu {
namespace {

constexpr int kThisThread = 1;  // which may not wait for the GPU meanwhile

}  // namespace

CapturedGraph::CapturedGraph(DriverHandle stream, const std::function<void()>& enqueue) {
  DriverHandle graph = nullptr;
  check_driver(driver().stream_begin_capture(stream, kThisThread), "capturing a stream");
  try {
    enqueue();
  } catch (...) {
    driver().stream_end_capture(stream, &graph);
    if (graph != nullptr) driver().graph_destroy(graph);
    throw;
  }
  check_driver(driver().stream_end_capture(stream, &graph), "capturing a stream");
  const int result = driver().graph_instantiate(&executable_, graph, 0);
  driver().graph_destroy(graph);
  check_driver(result, "making a graph of what a stream captured");
}

CapturedGraph::~CapturedGraph() {
  if (executable_ != nullptr) driver().graph_exec_destroy(executable_);
}

void CapturedGraph::run(DriverHandle stream) const {
  check_driver(driver().graph_launch(executable_, stream), "running a graph");
}

}  // namespace coda::gpu
