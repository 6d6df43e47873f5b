// SPDX-License-Identifier: Apache-2.0
// The result of analysing a program, before any of its kernels is compiled: the kernels in order
// and, for each kernel, the alternative ways to emit it, best first. Source text is emitted only
// when a caller asks for a way. If a way spills registers, the caller that compiles takes the next
// one. A caller that must not wait for the compiler takes a way that is already compiled.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "gpu/codegen/kernel_launch.h"

namespace coda::gpu {

struct PlannedKernel {
  size_t ways = 1;
  std::function<KernelLaunch(size_t way)> emit;
  // The text of the note if every way spills. `way`: the way that spills least.
  std::function<std::string(size_t way)> spills_note;
  // Further ways that `emit` takes, predicted to be slower: only for first_ready().
  size_t more_ways = 0;
  // Names a way without emitting it: plans of one program for other sizes, and programs with equal
  // texts, give ways with equal sources equal names. May be empty.
  std::function<std::string(size_t way)> name;
};

struct KernelPlan {
  std::vector<PlannedKernel> kernels;

  KernelPlan() = default;
  // For kernels that have only one way.
  KernelPlan(std::vector<KernelLaunch> launches);  // NOLINT(google-explicit-constructor)
};

// Reports the bytes of registers that the compiler spills for a kernel's source: 0 if it spills
// none, or if the source was never compiled. Empty function: nothing is known.
using SpilledBytes = std::function<int64_t(const std::string& source)>;

struct MadeWay {
  size_t way = 0;
  KernelLaunch launch;
  int64_t spilled_bytes = 0;    // of this way
  std::vector<size_t> spilled;  // the ways that were tried before this one
};

// Returns the first way that does not spill. If all ways spill, returns the way that spills least
// and adds a note to its launch.
MadeWay make(const PlannedKernel& kernel, const SpilledBytes& spilled);

// The first of all ways whose source is ready; none if there is no such way. Ways with names that
// `may_be` rejects are not emitted.
std::optional<KernelLaunch> first_ready(
    const PlannedKernel& kernel, const std::function<bool(const std::string& source)>& is_ready,
    const std::function<bool(const std::string& name)>& may_be = {});

// Makes each kernel of a plan.
std::vector<KernelLaunch> make(const KernelPlan& plan, const SpilledBytes& spilled = {});

}  // namespace coda::gpu
