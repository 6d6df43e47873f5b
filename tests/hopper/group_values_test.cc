// SPDX-License-Identifier: Apache-2.0
// Sums over groups of columns in accumulator fragments, on the CPU with a quad's threads as fibers:
// each thread that has a column of a group gets the group's sum, in the same order in each, and
// what a sub-tile reads is its own columns'.
#include <gtest/gtest.h>

#include "hopper/host_kernel.h"

namespace coda::hopper {
namespace {

// A kernel of 128 threads, one row each of its fragment's two: fills a span with numbers of their
// row and column, adds them chunk by chunk, and writes what each pair reads.
std::string kernel(int group, int span) {
  return R"(
#include "device/arguments.cuh"
#include "device/fragment.cuh"
#include "device/group_values.cuh"
#include "device/unrolled.cuh"
namespace coda::device {
using Arguments = KernelArguments<0, 1, 1>;
float value_at(u32 row, u32 column) { return static_cast<float>((row * 7 + column * 5) % 64); }
extern "C" void sums(const Arguments& a) {
  constexpr u32 kGroup = )" +
         std::to_string(group) + ", kSpan = " + std::to_string(span) + R"(;
  const u32 thread = thread_index();
  const u32 first_row = fragment_row(thread, 0);
  const u32 first_column = fragment_column(thread, 0);
  float* const out = reinterpret_cast<float*>(a.pointers[0]);
  GroupValues<kGroup, kSpan> values;
  unrolled<kSpan / kChunkColumns>([&](auto chunk) {
    constexpr u32 kChunk = decltype(chunk)::value;
    for (u32 pair = 0; pair < 4; ++pair) {
      const u32 row = first_row + 8 * (pair % 2);
      const u32 column = first_column + kChunk * kChunkColumns + 8 * (pair / 2);
      values.template add<kChunk>(pair, {{value_at(row, column), value_at(row, column + 1)}});
    }
  });
  values.finish();
  for (u32 tile = 0; tile < kSpan; tile += kSubTileColumns) {
    if (tile != 0) values.next_sub_tile();
    unrolled<kChunks>([&](auto chunk) {
      constexpr u32 kChunk = decltype(chunk)::value;
      for (u32 pair = 0; pair < 4; ++pair) {
        const u32 row = first_row + 8 * (pair % 2);
        const u32 column = first_column + tile + kChunk * kChunkColumns + 8 * (pair / 2);
        for (u32 i = 0; i < 2; ++i) {
          out[row * kSpan + column + i] = values.template at<kChunk>(pair).value[i];
        }
      }
    });
  }
}
}  // namespace coda::device
)";
}

TEST(GroupValues, EveryColumnReadsTheSumOfItsGroup) {
  constexpr int kRows = 64;
  struct Case {
    int group;
    int span;
  };
  for (const auto& [group, span] : {Case{2, 64},
                                    {4, 64},
                                    {8, 64},
                                    {32, 64},
                                    {64, 64},
                                    {128, 128},
                                    {32, 128},
                                    {96, 192},
                                    {48, 192},
                                    {256, 256}}) {
    SCOPED_TRACE(std::to_string(group) + " of " + std::to_string(span));
    KernelLaunch launch;
    launch.function = "sums";
    launch.source = kernel(group, span);
    launch.pointers = {0};
    launch.numbers = {0};
    launch.threads = 128;
    std::vector<float> sums(static_cast<size_t>(kRows * span), -1.0f);
    HostKernel(launch).run({sums.data()});
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < span; ++column) {
        float expected = 0;  // exact in any order
        for (int i = 0; i < group; ++i)
          expected += static_cast<float>((row * 7 + (column / group * group + i) * 5) % 64);
        ASSERT_EQ(sums[static_cast<size_t>(row * span + column)], expected)
            << "row " << row << ", column " << column;
      }
    }
  }
}

}  // namespace
}  // namespace coda::hopper
