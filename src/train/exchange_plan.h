// SPDX-License-Identifier: Apache-2.0
// Decides which gradients several processes exchange together, when, and when the updated weights
// are gathered. It is derived from the plan, so all processes get the same result.
//
// Parameters are assigned to shards in the order in which the backward completes their gradients; a
// shard has at least a sixteenth of all elements. On a GPU, a GEMM kernel is persistent: if an NCCL
// kernel starts before it, some multiprocessors are busy, and the GEMM's CTAs for them start late,
// so the GEMM may take twice as long. An opaque call (attention's backward) has many short CTAs
// that avoid those multiprocessors. So exchanges start before opaque calls, and what is complete
// only after the last one (the first layer's gradients and the embedding's) is exchanged after the
// backward. Two H100s gained nothing from this (docs/distributed.md): it is for links slower than
// NVLink.
//
// Weights are gathered during the next forward by the same rule: the gathering of a shard starts
// two opaque calls before the first step that reads it, so that it has the time of a layer. Weights
// that are read before that are gathered during the update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coda/compile.h"
#include "coda/weights.h"

namespace coda {

struct ExchangedParameter {
  std::string name;
  int64_t elements = 0;
  bool has_copy = false;  // the plan reads a 16-bit copy
};
std::vector<ExchangedParameter> exchanged_parameters(const Weights& weights);

struct ExchangePlan {
  static constexpr size_t kBehind = SIZE_MAX;
  static constexpr size_t kWithUpdate = SIZE_MAX;
  struct Shard {
    bool has_copy = false;  // all parameters or none; mixed: any
    int64_t elements = 0;
    size_t complete = 0;     // after this many steps of the backward
    size_t start = kBehind;  // before this step of it, or after all
    // gather: the forward step before which its weights are gathered, or kWithUpdate. read: the
    // first step that reads them (number of steps: none).
    size_t gather = kWithUpdate;
    size_t read = 0;
  };
  std::vector<Shard> shards;     // in the order of exchange
  std::vector<size_t> shard_of;  // by parameter
  std::vector<size_t> order;     // in the order of completed gradients
  size_t steps = 0;              // of the backward
  size_t forward_steps = 0;

  // Elements exchanged during the backward, and gathered during the forward.
  int64_t overlapped_elements() const;
  int64_t elements_under() const;
  int64_t elements() const;
  std::string text() const;  // see Trainer::exchange_text
};

// `least_bytes` affects only when exchanges happen during the backward and forward: each has at
// least that many bytes. With a single process all parameters are one shard (`is_mixed`), or those
// with a copy are one and the others another. Reading a copy of a parameter counts as reading the
// parameter.
ExchangePlan exchange_plan(const Compiled& compiled,
                           const std::vector<ExchangedParameter>& parameters, int processes,
                           int64_t least_bytes, bool is_mixed = true);

}  // namespace coda
