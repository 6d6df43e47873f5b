// SPDX-License-Identifier: Apache-2.0
// A Plan: programs and opaque calls in order, for the forward and the backward, with the tensors
// between them. It is plain data: a backend runs it, a person reads its text.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coda/api.h"
#include "coda/program.h"

namespace CODA_API coda {

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
  bool is_table = false;     // an input that is constant data (RoPE tables, ids): resident anyway
  bool is_upstream = false;  // an input that seeds the backward: of a loss, its scale
  // Of a temporary that only the steps of one loop see, that loop: it has memory for one chunk.
  int loop = -1;
};

// A call of an operation that the compiler does not look into (coda/operation.h): attention, its
// gradient, a program's own.
struct OpaqueCall {
  std::string function;  // the operation's name: "attention", "attention_backward", "embedding"
  std::map<std::string, double>
      attributes;  // those that are not at the defaults that the operation declares
  std::map<std::string, Dim>
      sizes;  // attention: "sequence", tokens of one sequence (M is a multiple of it)
  std::vector<std::string> inputs;  // tensor names: operands, then perhaps what is added to
  std::vector<std::string> outputs;
};

enum class StepRole : uint8_t { gemm, tile, finalizer, opaque };

struct PlanStep {
  std::string name;
  StepRole role = StepRole::gemm;
  std::variant<Program, OpaqueCall> work;
  std::vector<std::string>
      reasons;    // why each op stands here and what stopped it from standing earlier, for people
  int loop = -1;  // index into Plan::loops; steps of one loop are consecutive
  // What runs instead of `work` from a loop's second chunk on, where it differs: a sum over rows is
  // added to what the first chunk stored.
  std::optional<Program> later{};
};

// A loop over chunks of rows: consecutive steps of one phase that run for one chunk after another,
// so that what only they see never lies in memory whole. Inside, `symbol` is the number of a
// chunk's rows: of a tensor with that many rows a step sees the chunk's, of partials along columns
// those of the chunk.
struct RowChunks {
  std::string symbol;
  int64_t rows = 0;  // of a chunk, a multiple of kPartialSpan; the last chunk has what is left
  std::vector<std::string> sums{};  // sums over all rows, fp32, complete when the loop has ended
};

struct Plan {
  std::vector<PlanTensor> tensors;
  std::vector<PlanStep> forward;
  std::vector<PlanStep> backward;
  std::vector<RowChunks> loops{};
  std::vector<std::string> notes{};  // what was asked for and not done, and why, for people

  const PlanTensor& tensor(std::string_view name) const;  // throws Error if there is none
};

// What a step does with a tensor; of one that is added to, both.
struct StepTensor {
  std::string name;
  bool read = false;
  bool written = false;
};
// In the order in which a Kernel takes them: a program's tensors, or a call's inputs and then its
// outputs (where one name may stand in both).
std::vector<StepTensor> step_tensors(const PlanStep& step);

// A program as a plan of one step, whose tensors are all the caller's: what it stores is an output,
// the others are inputs.
Plan one_step_plan(const Program& program);

}  // namespace CODA_API coda
