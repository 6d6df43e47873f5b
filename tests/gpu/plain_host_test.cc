// SPDX-License-Identifier: Apache-2.0
// The kernels that do without tensor cores, run on the CPU (host_kernel.h): products of fp32, of
// two types, of operands in every order, of several segments, and sums over groups that no warp
// holds, of tables too.
#include <gtest/gtest.h>

#include "gpu/host_run.h"
#include "gpu/lower.h"
#include "program/random_program.h"

namespace coda::gpu {
namespace {

// No size is a multiple of a tile or of a step along K; some rows lie further apart.
const DimValues kOddSizes{{"M", 131}, {"N", 70}, {"K", 37}, {"L", 5}};

void expect_right(const std::string& text) {
  const Program program = parse_program(text);
  const Values inputs = tests::random_inputs(program, kOddSizes, 1);
  for (int64_t gap : {0, 3}) {
    expect_close(program, kOddSizes, inputs, run_on_host(program, kOddSizes, inputs, {.gap = gap}));
  }
}

TEST(PlainOnHost, ProductsOfEveryOrder) {
  expect_right("program nt {\n  acc = gemm(a[M, K], b[N, K], nt)\n  store(y, acc)\n}");
  expect_right("program nn {\n  acc = gemm(a[M, K], b[K, N])\n  store(y, acc)\n}");
  expect_right("program tn {\n  acc = gemm(a[K, M], b[K, N], tn)\n  store(y:bf16, acc)\n}");
}

TEST(PlainOnHost, ProductsOfTwoTypes) {
  expect_right("program mixed {\n  acc = gemm(a[M, K]:bf16, b[N, K], nt)\n  store(y, acc)\n}");
}

TEST(PlainOnHost, SegmentsAreAdded) {
  expect_right(
      "program segments {\n  acc = gemm(a[M, K], b[K, N]; c[M, L], d[L, N])\n"
      "  store(y, acc)\n}");
}

// A group of 96 columns is summed by a warp, three columns a lane; of 40, two and one.
TEST(PlainOnHost, SumsOfGroupsOfAnySize) {
  for (const char* group : {"96", "40", "5"}) {
    const std::string columns = std::to_string(3 * std::stoi(group));
    expect_right("program groups {\n  x = tile(x[M, " + columns +
                 "])\n  store(s, reduce_group(x, " + group + "))\n}");
  }
}

// A table's columns repeat, and its rows go by an index: the group may reach over the table's end.
TEST(PlainOnHost, SumsOfGroupsOfATable) {
  expect_right(
      "program repeated {\n  x = tile(x[M, 40], repeat=3)\n  store(s, reduce_group(x, 60))\n}");
  expect_right(
      "program gathered {\n  x = tile(x[L, 40], rows=i[M], repeat=3)\n"
      "  store(s, reduce_group(x, 24))\n}");
}

}  // namespace
}  // namespace coda::gpu
