// SPDX-License-Identifier: Apache-2.0
// What is known of a program before any of its kernels is compiled: its kernels in order, and for
// each the ways in which it can be made, best first. Analysis is over when a plan is there; a way
// is emitted when somebody asks for it. Where registers spill, whoever compiles takes the next way.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "gpu/codegen/kernel_launch.h"

namespace coda::gpu {

struct PlannedKernel {
  size_t ways = 1;
  std::function<KernelLaunch(size_t way)> emit;
  // What a note says if every way spills, given the one that spills least.
  std::function<std::string(size_t way)> spills_note;
};

struct KernelPlan {
  std::vector<PlannedKernel> kernels;

  KernelPlan() = default;
  // Kernels that can be made in one way.
  KernelPlan(std::vector<KernelLaunch> launches);  // NOLINT(google-explicit-constructor)
};

// What the compiler says of a kernel's text: the bytes that its registers spill, 0 if none or if it
// was not asked. Empty: nothing is known.
using SpilledBytes = std::function<int64_t(const std::string& source)>;

struct MadeWay {
  size_t way = 0;
  KernelLaunch launch;
  int64_t spilled_bytes = 0;    // of itself
  std::vector<size_t> spilled;  // ways before it
};

// The first way that does not spill; if all do, the one that spills least, which its note says.
MadeWay make(const PlannedKernel& kernel, const SpilledBytes& spilled);

// Of each kernel.
std::vector<KernelLaunch> make(const KernelPlan& plan, const SpilledBytes& spilled = {});

}  // namespace coda::gpu
