// SPDX-License-Identifier: Apache-2.0
#include "ready.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <list>

#include "block.h"
#include "coda/compile.h"

namespace coda::hopper_memory {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

void measure_ready(std::shared_ptr<gpu::GpuState> state, std::ofstream& json) {
  const auto report = [&](const std::string& row, double ms) {
    std::printf("ready: %-52s %9.2f ms\n", row.c_str(), ms);
    std::fflush(stdout);
    json << nlohmann::json{{"row", "ready, " + row}, {"ms", ms}}.dump() << "\n";
  };
  const auto synchronize = [&] {
    gpu::check_driver(gpu::driver().stream_synchronize(state->stream), "waiting");
  };
  // One program with a product and an epilogue that computes, from its text to its result.
  {
    const Program program = parse_program(R"(program gated {
      acc = gemm(x[M, K]:bf16, g[N, K]:bf16)
      up = gemm(x, u[N, K]:bf16)
      r = per_row(r[M])
      store(y:bf16, silu(acc * r) * (up * r))
    })");
    const DimValues sizes{{"M", 256}, {"N", 256}, {"K", 256}};
    std::list<DeviceTensor> tensors;
    std::vector<TensorView> views;
    for (const TensorDecl& decl : program.tensors) {
      const PhysicalShape shape = physical_shape(decl, sizes);
      tensors.emplace_back(decl.dtype, shape.rows, shape.cols, Stream::of(state->stream));
      tensors.back().fill_bytes(0, Stream::of(state->stream));
      views.push_back(tensors.back().view());
    }
    synchronize();
    const auto start = Clock::now();
    const auto backend = gpu::make_gpu_backend();
    backend->use_stream(Stream::of(state->stream));
    const auto kernel = backend->prepare(program, sizes);
    report("one program prepared", ms_since(start));
    kernel->run(views);
    synchronize();
    report("one program, its first result", ms_since(start));
  }
  for (const bool backward : {false, true}) {
    const std::string phase = backward ? "forward + backward: " : "forward: ";
    auto start = Clock::now();
    const BlockPlan block = block_plan(4096, 1024, backward);
    report(phase + "plan compiled", ms_since(start));
    std::list<DeviceTensor> tensors;
    for (const PlanTensor& tensor : block.plan.tensors) {
      const PhysicalShape shape = physical_shape(tensor.decl, block.sizes);
      tensors.emplace_back(tensor.decl.dtype, shape.rows, shape.cols, Stream::of(state->stream));
      tensors.back().fill_bytes(0, Stream::of(state->stream));
    }
    synchronize();
    start = Clock::now();
    const auto backend = gpu::make_gpu_backend();
    backend->use_stream(Stream::of(state->stream));
    report(phase + "backend made", ms_since(start));
    Session session(block.plan, *backend, block.sizes);
    report(phase + "session made", ms_since(start));
    auto at = tensors.begin();
    for (const PlanTensor& tensor : block.plan.tensors) {
      const bool callers = tensor.role == TensorRole::input ||
                           tensor.role == TensorRole::parameter ||
                           tensor.role == TensorRole::output;
      if (callers && tensor.view_of.empty()) session.bind(tensor.decl.name, at->view());
      ++at;
    }
    session.forward();
    if (backward) session.backward();
    report(phase + "first run enqueued", ms_since(start));
    synchronize();
    report(phase + "first run done", ms_since(start));
  }
}

}  // namespace coda::hopper_memory
