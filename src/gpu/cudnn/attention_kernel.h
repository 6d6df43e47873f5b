// SPDX-License-Identifier: Apache-2.0
// The operation "attention" and its backward, implemented with cuDNN as a kernel of the GPU
// backend.
#pragma once

#include <map>
#include <memory>

#include "coda/operation.h"
#include "gpu/cudnn/attention_graph.h"
#include "gpu/cudnn/attention_part.h"
#include "gpu/launch/launched_kernel.h"

namespace coda::gpu::cudnn {

// Shared by the kernels of a backend: the handle and the compiled graphs.
struct Library {
  Handle handle;
  struct Compiled {
    AttentionGraph attention;  // which tensor is which; its graph has moved to `graph`
    CompiledGraph graph;
  };
  std::map<AttentionProblem, Compiled> graphs;

  Compiled& compiled(const AttentionProblem& problem);
};

// `call` must be "attention" or "attention_backward" with an empty why_not_cudnn(). Other row
// strides than dense ones are supported; their graph is compiled at the first run. deterministic:
// bitwise repeatable. Throws Error if cuDNN has no engine for the call.
std::unique_ptr<Kernel> make_attention_kernel(std::shared_ptr<GpuState> state,
                                              std::shared_ptr<Library> library,
                                              const OperationCall& call, bool deterministic,
                                              const PartLimits& limits = {});

}  // namespace coda::gpu::cudnn
