// SPDX-License-Identifier: Apache-2.0
// Which gradients several processes exchange together, when they do, and when the updated weights
// are gathered: read off a plan, so that all processes find the same.
//
// Parameters are put into shards in the order in which the backward completes their gradients; a
// shard has a sixteenth of all elements or more. On a GPU a product's kernel holds each
// multiprocessor from its first tile to its last: of a kernel of NCCL that comes before it, some
// multiprocessors stay busy, and the product's blocks for them begin when the others end, so it may
// take twice as long. The blocks of an opaque call (attention's backward) are many and short, and
// go around those multiprocessors. So exchanges start before opaque calls, and what is complete
// behind the last one (the first layer's and the embedding) is exchanged behind the backward. Two
// H100s gained nothing by it (docs/distributed.md): it is for links slower than NVLink.
//
// Weights are gathered under the next forward by the same rule: a shard's gathering starts before
// the last opaque call but one before the first step that reads it, so that a link has a layer's
// time. What the forward reads before any such call is gathered beside the update.
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
  bool has_copy = false;  // in 16 bits, which the plan reads
};
std::vector<ExchangedParameter> exchanged_parameters(const Weights& weights);

struct ExchangePlan {
  static constexpr size_t kBehind = SIZE_MAX;
  static constexpr size_t kWithUpdate = SIZE_MAX;
  struct Shard {
    bool has_copy = false;  // all of its parameters, or none; of one process: any
    int64_t elements = 0;
    size_t complete = 0;     // behind so many steps of the plan's backward
    size_t start = kBehind;  // before this step of it; behind all of them
    // Its weights: before this step of the plan's forward they are gathered beside what follows, or
    // beside the update; and this step reads them first (all steps: none does).
    size_t gather = kWithUpdate;
    size_t read = 0;
  };
  std::vector<Shard> shards;     // in the order in which they are exchanged
  std::vector<size_t> shard_of;  // by parameter
  std::vector<size_t> order;     // parameters, as the backward completes their gradients
  size_t steps = 0;              // of the backward
  size_t forward_steps = 0;

  // Elements that are exchanged beside the backward, and gathered under the forward.
  int64_t elements_beside() const;
  int64_t elements_under() const;
  int64_t elements() const;
  std::string text() const;  // see Trainer::exchange_text
};

// What is exchanged does not depend on `least_bytes`, only when: beside the backward, and under the
// forward, at least so many bytes at once. Of one process all parameters are one shard. Who reads a
// copy of a parameter reads the parameter.
ExchangePlan exchange_plan(const Compiled& compiled,
                           const std::vector<ExchangedParameter>& parameters, int processes,
                           int64_t least_bytes);

}  // namespace coda
