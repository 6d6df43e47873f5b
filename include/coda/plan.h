// SPDX-License-Identifier: Apache-2.0
// A Plan: the programs and opaque calls of a forward and a backward in order, with the tensors
// between them. It is plain data: a backend runs it, and it can be printed as text.
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
  parameter,  // given by the caller; its version shows whether a cached fold is stale
  output,     // memory of the caller: forward results and gradients
  saved,      // written by the forward, read by the backward
  temporary,  // lives inside one phase
};

// A tensor of the plan; programs name it by TensorDecl::name, which is unique in a plan.
struct PlanTensor {
  TensorDecl decl;
  TensorRole role = TensorRole::temporary;
  // A view has no memory of its own. It is columns [column_offset, column_offset + cols) of
  // `view_of` or, if `transposed`, the vector `view_of` with its dimensions swapped. Its role is
  // that of `view_of`.
  std::string view_of{};
  Dim column_offset = 0;
  bool transposed = false;
  bool is_table = false;     // a constant input (RoPE tables, ids): always resident
  bool is_upstream = false;  // an input that seeds the backward: the scale of a loss
  // A temporary used only inside one loop: the index of that loop; it has memory for one block.
  int loop = -1;
  // A tensor from which the backward recomputes a layer: the number of the layer.
  int starts_layer = -1;
};

// A call of an operation that the compiler treats as opaque (coda/operation.h): attention, its
// gradient, a user-defined operation.
struct OpaqueCall {
  std::string function;  // the operation's name: "attention", "attention_backward", "embedding"
  std::map<std::string, double> attributes;  // those that differ from the operation's defaults
  std::map<std::string, Dim>
      sizes;  // attention: "sequence", tokens of one sequence (M is a multiple of it)
  std::vector<std::string> inputs;  // tensor names: operands, then possibly the tensor to add to
  std::vector<std::string> outputs;
};

enum class StepRole : uint8_t { gemm, tile, finalizer, opaque };

struct PlanStep {
  std::string name;
  StepRole role = StepRole::gemm;
  std::variant<Program, OpaqueCall> work;
  std::vector<std::string>
      reasons;    // for people: why each op is in this program and not in an earlier one
  int loop = -1;  // index into Plan::loops; the plan steps of one loop are consecutive
  // Replaces `work` from a loop's second block on, where it differs: a sum over rows is then added
  // to the sum of the earlier blocks.
  std::optional<Program> later{};
};

// A loop over blocks of rows: consecutive plan steps of one phase that run for one block after
// another, so that tensors used only inside the loop are never whole in memory. Inside the loop
// `symbol` is the number of rows of a block. A step sees the block's rows of each tensor with
// `symbol` rows, and of column partials those of the block.
struct RowBlocks {
  std::string symbol;
  int64_t rows = 0;  // per block, a multiple of kPartialSpan; the last block has the rest
  std::vector<std::string> sums{};  // sums over all rows, fp32, complete after the loop
};

// A tensor that is in the host's memory between the phases. It is two temporaries, one of each
// phase. Steps are indices into Plan::forward and Plan::backward, or their number; none is inside a
// loop.
struct HostCopy {
  std::string stored;   // the forward's
  std::string fetched;  // the backward's
  // Its copy to the host starts before step `out` of the forward and is complete before step
  // `out_end`, its copy from the host before `in` and `in_end` of the backward.
  size_t out = 0;
  size_t out_end = 0;
  size_t in = 0;
  size_t in_end = 0;
};

struct Plan {
  std::vector<PlanTensor> tensors;
  std::vector<PlanStep> forward;
  std::vector<PlanStep> backward;
  std::vector<RowBlocks> loops{};
  std::vector<HostCopy> host_copies{};
  std::vector<std::string> notes{};  // for people: requests that were not fulfilled, and why

  const PlanTensor& tensor(std::string_view name) const;  // throws Error if there is none
};

// How a plan step accesses a tensor: both flags are set for one that it adds to.
struct StepTensor {
  std::string name;
  bool read = false;
  bool written = false;
};
// In the order in which a Kernel takes them: a program's tensors, or a call's inputs and then its
// outputs (a name may be in both).
std::vector<StepTensor> step_tensors(const PlanStep& step);

// A plan with one program as its only step. All tensors are the caller's: outputs are those that
// the program stores, the rest are inputs.
Plan one_step_plan(const Program& program);

}  // namespace CODA_API coda
