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

// What the kernels of one backend share: the handle, and each graph that was compiled.
struct Library {
  Handle handle;
  struct Compiled {
    AttentionGraph attention;  // which tensor is which; its graph has moved to `graph`
    CompiledGraph graph;
  };
  std::map<AttentionProblem, Compiled> graphs;

  Compiled& compiled(const AttentionProblem& problem);
};

// `call` is of "attention" or "attention_backward", and why_not_cudnn() is empty. Tensors with
// other strides of rows than the dense ones are taken; their graph is compiled when they are first
// run. deterministic: the same bits each time. Throws Error if cuDNN has no engine for it.
std::unique_ptr<Kernel> make_attention_kernel(std::shared_ptr<GpuState> state,
                                              std::shared_ptr<Library> library,
                                              const OperationCall& call, bool deterministic,
                                              const PartLimits& limits = {});

}  // namespace coda::gpu::cudnn
