// SPDX-License-Identifier: Apache-2.0
// A Plan: programs and opaque calls in order, for the forward and the backward, with the tensors
// between them. It is plain data: a backend runs it, a person reads its text.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "coda/program.h"

namespace coda {

enum class TensorRole : uint8_t {
  input,      // given by the caller at each run
  parameter,  // given by the caller; its version decides whether a cached fold is stale
  output,     // the caller's: forward results and gradients
  saved,      // made by the forward, read by the backward
  temporary,  // lives inside one phase
};

// A tensor of the plan; programs name it by TensorDecl::name, which is unique in a plan.
struct PlanTensor {
  TensorDecl decl;
  TensorRole role = TensorRole::temporary;
  // A view has no memory of its own: columns [column_offset, column_offset + cols) of `view_of`;
  // or, if `transposed`, the vector `view_of` read along the other dimension. Its role is that of
  // what it views.
  std::string view_of{};
  Dim column_offset = 0;
  bool transposed = false;
  bool is_table = false;  // an input that is constant data (RoPE tables, ids): resident anyway
};

// A call of a function that the compiler does not look into (attention, embedding and their
// adjoints).
struct OpaqueCall {
  std::string function;  // "attention", "attention_backward", "embedding", "embedding_backward"
  std::map<std::string, double>
      attributes;  // attention: "heads", "kv_heads", "head_dim", "scale", "causal"
  std::map<std::string, Dim>
      sizes;  // attention: "sequence", tokens of one sequence (M is a multiple of it)
  std::vector<std::string> inputs;  // tensor names, in the function's order
  std::vector<std::string> outputs;
};

enum class StepRole : uint8_t { gemm, tile, finalizer, opaque };

struct PlanStep {
  std::string name;
  StepRole role = StepRole::gemm;
  std::variant<Program, OpaqueCall> work;
  std::vector<std::string>
      reasons;  // why each op stands here and what stopped it from standing earlier, for people
};

struct Plan {
  std::vector<PlanTensor> tensors;
  std::vector<PlanStep> forward;
  std::vector<PlanStep> backward;

  const PlanTensor& tensor(std::string_view name) const;  // throws Error if there is none
};

}  // namespace coda
