// SPDX-License-Identifier: Apache-2.0
// Programs that nobody meant, as a broken text may still be one: each becomes kernels, or is
// refused with an Error that says why; nothing else is thrown.
#include <gtest/gtest.h>

#include <set>

#include "coda/error.h"
#include "gpu/codegen/kernel_launch.h"
#include "gpu/lower.h"
#include "program/mutated_text.h"

namespace coda::gpu {
namespace {

// Every symbol of its tensors' sizes, small and odd.
DimValues some_sizes(const Program& program) {
  DimValues sizes;
  for (const TensorDecl& tensor : program.tensors) {
    for (const Dim& dim : {tensor.shape.rows, tensor.shape.cols}) {
      for (const auto& [symbol, factor] : dim.terms())
        sizes.try_emplace(symbol, 3 + 2 * static_cast<int64_t>(sizes.size()));
    }
  }
  return sizes;
}

TEST(LoweringFuzz, BrokenProgramsBecomeKernelsOrAreRefused) {
  const std::vector<std::string> texts = tests::random_texts(100);
  int lowered = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const std::string broken = tests::TextMutator(seed).mutate(texts[seed % texts.size()]);
    try {
      const Program program = parse_program(broken);
      const std::vector<KernelLaunch> launches = lower(program, some_sizes(program), {});
      EXPECT_FALSE(launches.empty());
      ++lowered;
    } catch (const Error&) {
    } catch (const std::exception& error) {
      FAIL() << "seed " << seed << ": " << error.what() << "\n" << broken;
    }
  }
  EXPECT_GT(lowered, 100);
}

}  // namespace
}  // namespace coda::gpu
