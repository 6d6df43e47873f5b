// SPDX-License-Identifier: Apache-2.0
// What is asked of the compiler: the values of a graph that are wanted, and how its plan shall be
// made. The passes know these types and nothing of compile() (coda/compile.h).
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
  std::optional<DType> dtype = {};  // of a matrix that is stored; else CompileOptions::storage
};
struct SeededOutput {
  Value output;
  Value cotangent;  // broadcasts to the output's shape; usually an input of the graph (an upstream
                    // gradient)
  // The cotangent is given before the forward runs, and a backward follows each forward: a gradient
  // that needs the cotangent as a factor alone may be written by the forward.
  bool is_early = false;
};
// Of an input that a seeded output is made of, else compile() throws Error. Where its terms cancel,
// or comparisons alone read it, the gradient is zeros.
struct GradientRequest {
  Value input;
  std::string name;  // of the gradient tensor in the plan
  DType dtype = DType::f32;
  bool accumulate = false;  // the tensor holds a gradient already: add to it
};

struct CompileRequest {
  std::vector<NamedValue> outputs;  // forward results that the caller reads
  std::vector<SeededOutput> seeds;  // empty: no backward
  std::vector<GradientRequest> gradients;
};

// Values as large as [rows, vocabulary] are not stored whole but made and consumed in chunks of
// rows where they take more than 256 MiB and that lessens the memory: in the fewest rows that take
// 128 MiB, or an eighth of all, whichever is more; where speed comes first, in so many that adding
// to a weight's gradient once a chunk takes at most a sixth of the time of its product (4096 on an
// H200).
inline constexpr int64_t kAutomaticChunkRows = -1;

// Which products of bf16 operands are made in 8 bits (coda/eight_bits.h).
enum class EightBits : uint8_t {
  none,
  // All of them except the GEMM that sums the gradient of a loss's logits over its rows. That GEMM
  // makes the gradient of the head's weight. In 8 bits it increases the loss by 1.5 to 3 %; the
  // other GEMMs do not change the loss (docs/fp8.md).
  fp8,
  // As fp8, and values that are saved only for epilogues of the backward are saved in 8 bits.
  fp8_kept,
};

constexpr int kAllLayers = std::numeric_limits<int>::max();

struct CompileOptions {
  Objective objective = Objective::memory;
  Rates rates = {};            // of the backend that will run the plan: Backend::rates()
  DimValues sizes;             // what the symbols are assumed to be when costs are compared
  DType storage = DType::f32;  // of activations and gradients that the plan stores
  // Of so many equal layers in a row, from the first on, only what each starts from is saved, and
  // the backward runs a layer's forward again before it needs it. Gradients are those of saved
  // values, but for what is rounded where it is stored. A graph without such layers is planned as
  // without.
  int layers_run_again = 0;
  bool fuse = true;  // false: GEMMs without epilogues, norms made before them: the baseline
  bool overwrite_saved = false;  // results may be stored over what the forward saved, where it is
                                 // read for the last time: one backward for each forward
  // Rows of a chunk of the widest values that the backward makes without the upstream gradient (a
  // loss's logits and their gradient): they are then consumed at once, and their products wait for
  // that gradient instead. 0: stored whole; kAutomaticChunkRows; others are rounded up to 64. Where
  // it cannot be done the plan's notes say why.
  int64_t chunk_rows = 0;
  // The caller that runs the plan keeps the scales of the 8-bit operands. `sizes` must be the sizes
  // that the plan will run with.
  EightBits eight_bits = EightBits::none;
  // Parameters whose products stay in 16 bits all the same, and so do those that make their
  // gradients: names, in which * stands for any letters ("model.layers.0.*"). Error for one that is
  // no parameter's.
  std::vector<std::string> eight_bits_except = {};
  // The plan does not make the copies in 8 bits that are of one parameter alone, or of columns of
  // one: they are inputs, and Compiled::parameter_copies makes them, each time the parameters have
  // changed.
  bool copies_are_given = false;
};

}  // namespace CODA_API coda
