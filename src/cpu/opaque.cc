// SPDX-License-Identifier: Apache-2.0
// The table of opaque functions: a name, the operands it takes, and who prepares it.
#include "cpu/opaque.h"

#include "coda/error.h"
#include "cpu/attention.h"
#include "cpu/embedding.h"

namespace coda::cpu {

std::unique_ptr<Kernel> prepare_opaque(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                       const DimValues& sizes, int threads) {
  struct Function {
    const char* name;
    size_t fewest_inputs, most_inputs, outputs;
    std::unique_ptr<Kernel> (*prepare)(const OpaqueCall&, std::span<const TensorDecl>,
                                       const DimValues&, int);
  };
  static constexpr Function kFunctions[] = {
      {"attention", 3, 3, 2, prepare_attention},
      {"attention_backward", 6, 6, 3, prepare_attention_backward},
      {"embedding", 2, 2, 1, prepare_embedding},
      {"embedding_backward", 2, 3, 1, prepare_embedding_backward},
  };
  require(threads > 0, call.function + ": the number of threads must be positive, not " +
                           std::to_string(threads));
  for (const Function& f : kFunctions) {
    if (call.function != f.name) continue;
    require(call.inputs.size() >= f.fewest_inputs && call.inputs.size() <= f.most_inputs &&
                call.outputs.size() == f.outputs &&
                tensors.size() == call.inputs.size() + call.outputs.size(),
            call.function + ": it has " + std::to_string(call.inputs.size()) + " inputs and " +
                std::to_string(call.outputs.size()) + " outputs (" +
                std::to_string(tensors.size()) + " declared), not " +
                std::to_string(f.fewest_inputs) + " and " + std::to_string(f.outputs));
    return f.prepare(call, tensors, sizes, threads);
  }
  throw Error("opaque function '" + call.function +
              "' is not one of attention, attention_backward, embedding, embedding_backward");
}

}  // namespace coda::cpu
