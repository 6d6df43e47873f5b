// SPDX-License-Identifier: Apache-2.0
// Fixtures of tests that need a GPU: elsewhere each says that it is skipped, and why.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "coda/device.h"
#include "gpu/launch/context.h"
#include "gpu/lower.h"

namespace coda::tests {

// LowerOptions that name no target are for this GPU.
class LowersForThisGpu : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!why_no_gpu().empty()) return;
    const gpu::Target& target = gpu::target_of(gpu::Context().info());
    std::string name(target.name);
    if (&target != &gpu::sm90()) name += ":" + std::string(target.architecture);
    setenv("CODA_GPU_TARGET", name.c_str(), 1);
  }
};
inline ::testing::Environment* const kLowersForThisGpu =
    ::testing::AddGlobalTestEnvironment(new LowersForThisGpu);

#define CODA_SKIP_WITHOUT_GPU() \
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << "no GPU: " << why

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override { CODA_SKIP_WITHOUT_GPU(); }
};

template <typename Parameter>
class OnGpuWith : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override { CODA_SKIP_WITHOUT_GPU(); }
};

// For tests of 8-bit floats, which not every target has (CODA_GPU_TARGET).
template <typename Fixture>
class WithEightBits : public Fixture {
 protected:
  void SetUp() override {
    Fixture::SetUp();
    const std::string why = gpu::why_no_eight_bits(gpu::chosen_target());
    if (!this->IsSkipped() && !why.empty()) GTEST_SKIP() << "it needs " << why;
  }
};

#undef CODA_SKIP_WITHOUT_GPU

}  // namespace coda::tests
