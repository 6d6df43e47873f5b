// SPDX-License-Identifier: Apache-2.0
#include "measure/captured_graph.h"

#include "hopper/jit/dynamic_library.h"

namespace coda::measure {
namespace {

using hopper::DriverHandle;

constexpr int kAnyThread = 0;  // none of the process's threads may wait for the GPU meanwhile

struct GraphApi {
  int (*begin)(DriverHandle, int);
  int (*end)(DriverHandle, DriverHandle*);
  int (*instantiate)(DriverHandle*, DriverHandle, unsigned long long);
  int (*launch)(DriverHandle, DriverHandle);
  int (*destroy)(DriverHandle);
  int (*destroy_executable)(DriverHandle);

  GraphApi() {
    static const hopper::DynamicLibrary library(hopper::driver_library());
    library.load(begin, "cuStreamBeginCapture_v2");
    library.load(end, "cuStreamEndCapture");
    library.load(instantiate, "cuGraphInstantiateWithFlags");
    library.load(launch, "cuGraphLaunch");
    library.load(destroy, "cuGraphDestroy");
    library.load(destroy_executable, "cuGraphExecDestroy");
  }
};

const GraphApi& graph_api() {
  static const GraphApi instance;
  return instance;
}

}  // namespace

CapturedGraph::CapturedGraph(DriverHandle stream, const std::function<void()>& enqueue)
    : stream_(stream) {
  DriverHandle graph = nullptr;
  hopper::check_driver(graph_api().begin(stream, kAnyThread), "capturing a stream");
  try {
    enqueue();
  } catch (...) {
    graph_api().end(stream, &graph);
    if (graph != nullptr) graph_api().destroy(graph);
    throw;
  }
  hopper::check_driver(graph_api().end(stream, &graph), "capturing a stream");
  const int result = graph_api().instantiate(&executable_, graph, 0);
  graph_api().destroy(graph);
  hopper::check_driver(result, "making a graph of what a stream captured");
}

CapturedGraph::~CapturedGraph() { graph_api().destroy_executable(executable_); }

void CapturedGraph::run() const {
  hopper::check_driver(graph_api().launch(executable_, stream_), "running a graph");
}

}  // namespace coda::measure
