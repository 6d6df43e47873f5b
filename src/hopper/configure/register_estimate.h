// SPDX-License-Identifier: Apache-2.0
// How many registers a thread of a kernel with products may need: what decides, before anything is
// compiled, which configurations are legal, and what a tile keeps in registers. Tests compile
// kernels at the limit, where a spill is a failure.
#pragma once

#include "hopper/legalise/space_analysis.h"

namespace coda::hopper {

// Roughly: accumulators, addresses and states, the planes of a fragment, direct loads of a
// fragment, vectors, running reductions (values that wait for a sub-tile's end take those of its
// accumulators).
uint32_t registers_of(const ProgramSizes& sizes, const SpaceAnalysis& space,
                      const device::GemmConfig& config);

// The same beside 192 accumulators, where a fragment's values find room among those that are
// consumed. The weights are fitted to 452 compiled kernels (the epilogues of the plans of LLaMA and
// GPT-2 and random ones, every such tile, three to five stages): none of the 177 that spilled is
// admitted.
uint32_t registers_beside_192(const ProgramSizes& sizes, const SpaceAnalysis& space,
                              const device::GemmConfig& config);

// Whether a cooperative tile loads tables that all sub-tiles beside each other read once, ahead of
// all of them, and keeps them.
bool keeps_tables(const ProgramSizes& sizes, const SpaceAnalysis& space,
                  const device::GemmConfig& config);

}  // namespace coda::hopper
