// SPDX-License-Identifier: Apache-2.0
// What the caller asks of the compiler: which values of a graph it wants, and options for the plan.
// These types are separate from compile() (coda/compile.h) so that compiler passes need only them.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/graph.h"
#include "coda/rates.h"

namespace CODA_API coda {

enum class Objective : uint8_t {
  memory,  // fewest saved bytes, then time
  speed,   // least time, then saved bytes
};

struct NamedValue {
  std::string name;
  Value value;
  std::optional<DType> dtype = {};  // storage type of a matrix; none: CompileOptions::storage
};
struct SeededOutput {
  Value output;
  Value cotangent;  // broadcasts to the output's shape; usually an input of the graph (an upstream
                    // gradient)
  // The cotangent is known before the forward runs, and each forward is followed by a backward.
  // Then the forward may already write a gradient that needs the cotangent only as a factor.
  bool is_early = false;
};
// The gradient with respect to an input. A seeded output must depend on the input, else compile()
// throws Error. The gradient is zero if its terms cancel or if only comparisons read the input.
struct GradientRequest {
  Value input;
  std::string name;  // of the gradient tensor in the plan
  DType dtype = DType::f32;
  bool accumulate = false;  // add to the gradient that the tensor already holds
};

struct CompileRequest {
  std::vector<NamedValue> outputs;  // forward results that the caller reads
  std::vector<SeededOutput> seeds;  // empty: no backward
  std::vector<GradientRequest> gradients;
};

// Values as large as [rows, vocabulary] are computed and consumed in blocks of rows instead of
// being stored whole, if they take more than 256 MiB and blocks reduce memory. A block takes at
// least 128 MiB and an eighth of the whole. Where each block adds to a weight's gradient, blocks
// are so large that the addition takes at most a sixth of the gradient's GEMM time (4096 rows on an
// H200); for Objective::memory, however, no larger than half of the whole. Another negative number,
// -n, is for a plan whose number of rows varies: if it has blocks, they have as many rows as if the
// whole had at least n.
inline constexpr int64_t kAutomaticLossRows = -1;

// Which GEMMs with bf16 operands run in 8 bits (coda/eight_bits.h).
enum class EightBits : uint8_t {
  none,
  // All of them except the GEMM that sums the gradient of a loss's logits over its rows. That GEMM
  // makes the gradient of the head's weight. In 8 bits it increases the loss by 1.5 to 3 %; the
  // other GEMMs do not change the loss (docs/fp8.md).
  fp8,
  // As fp8; in addition, values saved only for epilogues of the backward are saved in 8 bits.
  fp8_kept,
};

constexpr int kAllLayers = std::numeric_limits<int>::max();

// Choices that a caller has for a plan; part of the options of compile(), Trainer and ModelTrainer.
struct PlanChoices {
  Objective objective = Objective::memory;
  DType storage = DType::f32;  // of activations and gradients that the plan stores
  // Number of equal consecutive layers, from the first one on, that the backward recomputes: only
  // the input of each such layer is saved. Gradients equal those without recomputation except for
  // rounding of stored values. No effect on a graph without such layers.
  int recomputed_layers = 0;
  // The inputs of these layers are in the host's memory between forward and backward, except that
  // of the last one, which the backward reads first (Plan::host_copies). Requires
  // recomputed_layers; for backends with their own memory. All results are bitwise the same.
  bool layers_on_host = false;
  // Rows of a block of the widest values that the backward computes before the upstream gradient is
  // known (a loss's logits and their gradient). Each block is consumed at once, and the upstream
  // gradient is multiplied in afterwards. 0: store the values whole; kAutomaticLossRows: see
  // there; other values are rounded up to a multiple of 64. If blocks are not possible, the plan's
  // notes say why.
  int64_t loss_rows = 0;
  // GEMMs with 8-bit operands; the storage must be bf16. A caller of compile() that runs the plan
  // itself maintains the scales of these operands, and CompileOptions::sizes must be the sizes that
  // the plan runs with.
  EightBits eight_bits = EightBits::none;
  // Parameters whose GEMMs stay in 16 bits, both the forward's and those that compute their
  // gradients. Names may contain * for any letters ("model.layers.0.*"). Error for a name that
  // matches no parameter.
  std::vector<std::string> eight_bits_except = {};
};

struct CompileOptions : PlanChoices {
  Rates rates = {};              // of the backend that will run the plan (Backend::rates())
  DimValues sizes;               // values of the symbols that the cost model assumes
  bool fuse = true;              // false: the baseline with unfused norms and no GEMM epilogues
  bool overwrite_saved = false;  // results may overwrite saved tensors after their last read; then
                                 // each forward allows only one backward
  // For a GPU: a loop over rows keeps an aligned copy of an output that it reads again and whose
  // rows do not begin at multiples of 16 bytes (the logits of a vocabulary of 50257).
  bool aligns_outputs = false;
  // The plan does not compute 8-bit copies of a single parameter (or of some of its columns). They
  // are inputs of the plan instead, and the caller runs Compiled::parameter_copies after each
  // change of the parameters.
  bool copies_are_given = false;
};

}  // namespace CODA_API coda
