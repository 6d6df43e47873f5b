// SPDX-License-Identifier: Apache-2.0
// Whole kernels with products, run on the CPU (host_kernel.h): their epilogues compute what their
// programs mean, at ragged sizes, for tiles of each schedule, from memory that starts as NaN and
// writing nowhere else. All that stands between the accumulators and memory is the device's own
// text: staging ring, fragments, partials, selections, adds, column vectors, tables. The mainloop
// is not.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rounding.h"
#include "base/seeds.h"
#include "gpu/configure/choose_config.h"
#include "gpu/gemm_programs.h"
#include "gpu/host_run.h"
#include "gpu/lower.h"
#include "program/library_programs.h"
#include "program/random_program.h"

namespace coda::gpu {
namespace {

// Rows of whole 16 bytes, as the copy engine wants them; some rows more than they need.
constexpr HostRows kRows{.gap = 3, .multiple = 8};

Values run(const Program& program, const DimValues& sizes, const Values& inputs,
           const std::string& choice) {
  LowerOptions options;
  options.uses_table = false;
  if (!choice.empty()) options.choice = parse_choice(choice);
  options.multiprocessors = 2;  // so that a block has several tiles
  return run_on_host(program, sizes, inputs, kRows, options);
}

void expect_right(const Program& program, const DimValues& sizes, const std::string& choice) {
  SCOPED_TRACE(program.name + ", " + choice);
  const Values inputs = tests::random_inputs(program, sizes, 1);
  expect_close(program, sizes, inputs, run(program, sizes, inputs, choice));
}

// No size is a multiple of a tile, a sub-tile or a pair of elements.
const DimValues kRaggedSizes{{"M", 203}, {"N", 139}, {"K", 71}, {"S", 50}};

TEST(ProductOnHost, ResidualAndNorm) {
  expect_right(tests::library_program("residual_norm"), kRaggedSizes, "128x128p12s4");
}

// A vector that all heads share lies once in memory, also where its length is odd or half; what
// bends at 0, and comparisons.
TEST(ProductOnHost, AVectorOfEachHead) {
  const Program program = parse_program(R"(program heads {
  acc = gemm(h[M, K]:bf16, w[64*H, K]:bf16)
  store(q:bf16, acc * per_column(g[64], repeat=H))
  store(wide, acc + per_column(b[64]:bf16, repeat=H))
})");
  for (const char* choice : {"128x128p12s4", "128x256c21s3"})
    expect_right(program, {{"M", 203}, {"H", 3}, {"K", 71}}, choice);
  expect_right(parse_program(R"(program odd {
  acc = gemm(h[M, K]:bf16, w[9*H, K]:bf16)
  x = acc * per_column(g[9], repeat=H)
  store(y, where(x > 0.5, relu(x), abs(x) - (x <= per_row(r)) * 2))
})"),
               {{"M", 203}, {"H", 15}, {"K", 71}}, "128x128p12s4");
  expect_right(parse_program(R"(program dropout {
  x = gemm(h[M, K]:bf16, w[N, K]:bf16)
  keep = random(17, abs(per_row(row[M]:i32)), column_index()) < 0.9
  store(y:bf16, where(keep, x / 0.9, 0))
})"),
               kRaggedSizes, "128x128p12s4");
}

// Loads and stores of one memory, a row and a column vector, partials along columns.
TEST(ProductOnHost, NormBackward) {
  expect_right(tests::library_program("norm_backward"), kRaggedSizes, "128x128c11s4");
}

// Kernels without a product leave them: the program is cut behind its product.
TEST(ProductOnHost, TransposedCopiesAndMagnitudes) {
  expect_right(parse_program(R"(program copies {
  y = gemm(a[M, K]:bf16, b[N, K]:bf16, nt) * scalar(scale)
  store(y:bf16, y)
  store_transposed(columns:bf16, y)
  abs_max_into(largest, y)
})"),
               kRaggedSizes, "");
}

// Rows outside, whose accumulators are 0, would be the largest.
TEST(ProductOnHost, ColumnMaxima) {
  expect_right(parse_program(R"(program maxima {
  acc = gemm(a[M, K]:bf16, b[N, K]:bf16, nt)
  y = acc * acc * -1
  store(y:bf16, y)
  column_partial(largest, max(y))
})"),
               kRaggedSizes, "128x128p11s4");
}

// Two products side by side in a tile; a tile of 96 columns has half sub-tiles.
TEST(ProductOnHost, SwiGlu) {
  expect_right(tests::library_program("swiglu"), kRaggedSizes, "128x192c11s3");
}

TEST(ProductOnHost, SwiGluBackward) {
  expect_right(tests::library_program("swiglu_backward"), kRaggedSizes, "128x128p11s3");
}

// More tiles than the scheduler's ring has slots, with roles that run ahead of one another.
TEST(ProductOnHost, ManyTilesOfACluster) {
  const DimValues sizes{{"M", 128 * 9 + 37}, {"N", 264}, {"K", 72}};
  for (const char* tile : {"128x128p21s4", "128x128c12s3", "128x128p11s3"})
    expect_right(tests::library_program("residual_norm"), sizes, tile);
}

// The target of a row lies in any tile, and outside for some.
TEST(ProductOnHost, Loss) {
  expect_right(tests::library_program("loss"), kRaggedSizes, "128x128p21s4");
}

// Logits of a loop over rows: rows begin at multiples of 16 bytes, so the copy engine stores them
// for any number of columns, with what lies behind the last one. Nothing else reads that.
TEST(ProductOnHost, StoresMayEndInPaddingThatNobodyReads) {
  const Program program = parse_program(R"(program logits {
  v = gemm(h[M, K]:bf16, w[N, K]:bf16) * per_row(r[M])
  store(x:bf16, v)
  y = as_stored(v + per_column(b[N]), bf16)
  store(y:bf16, y)
  store(chosen, select_column(y, per_row(target[M]:i32)))
  row_partial(lse, log_sum_exp(y))
  column_partial(sums, sum(y))
})");
  const Values inputs = tests::random_inputs(program, kRaggedSizes, 1);
  for (const bool owns : {false, true}) {
    SCOPED_TRACE(owns);
    LowerOptions options{.owns_padding = owns, .choice = parse_choice("128x128p11s4")};
    options.multiprocessors = 2;
    expect_close(program, kRaggedSizes, inputs,
                 run_on_host(program, kRaggedSizes, inputs, {.multiple = 8}, options));
    for (const TensorDecl& decl : program.tensors)
      options.row_strides.push_back(
          round_up(physical_shape(decl, kRaggedSizes).cols, size_of(decl.dtype) == 2 ? 8 : 1));
    const std::vector<TensorMapSpec> maps = lower(program, kRaggedSizes, options).front().maps;
    const auto ends_in_padding = [](const TensorMapSpec& map) { return map.columns == 144; };
    EXPECT_EQ(std::ranges::count_if(maps, ends_in_padding), owns ? 2 : 0);
  }
}

TEST(ProductOnHost, Entropy) {
  expect_right(tests::library_program("row_entropy"), kRaggedSizes, "128x128p21s4");
}

TEST(ProductOnHost, WeightGradientsAreAdded) {
  expect_right(tests::library_program("weight_gradient"), kRaggedSizes, "128x128p11s4");
}

// Pairs in natural order, tables' rows gathered by position and repeated for each head.
TEST(ProductOnHost, Rope) {
  expect_right(parse_program(R"(program rope {
  acc = gemm(h[M, K]:bf16, w[384, K]:bf16, nt)
  z = acc * per_row(r[M])
  cos = tile(cos[S, 64], rows=position[M]:i32, repeat=3)
  sin = tile(sin[S, 64], rows=position, repeat=3)
  first, second = split_pairs(z, 128)
  store(q:bf16, merge_pairs(first * cos - second * sin, second * cos + first * sin, 128))
})"),
               kRaggedSizes, "128x256c11s3");
}

// A kernel cannot throw: it reads the table's last row, not what lies before or behind the table.
TEST(ProductOnHost, AnIndexOutsideReadsTheLastRow) {
  const Program program = parse_program(R"(program gathered {
  acc = gemm(h[M, K]:bf16, w[64, K]:bf16, nt)
  store(y:bf16, acc + tile(table[S, 64], rows=ids[M]:i32))
})");
  const auto rows = static_cast<double>(kRaggedSizes.at("S"));
  Values inputs = tests::random_inputs(program, kRaggedSizes, 1);
  std::vector<double>& ids = inputs.at("ids");
  for (size_t i = 0; i < ids.size(); i += 3) ids[i] = rows - 1;
  const Values inside = run(program, kRaggedSizes, inputs, "128x64p11s4");
  for (size_t i = 0; i < ids.size(); i += 3) ids[i] = i % 2 == 0 ? rows : -1;
  EXPECT_EQ(run(program, kRaggedSizes, inputs, "128x64p11s4"), inside);
}

// CODA_PRODUCT_SEEDS=FIRST-LAST runs others; one takes seconds to compile.
TEST(ProductOnHost, RandomPrograms) {
  for (const uint64_t seed : tests::seeds_of("CODA_PRODUCT_SEEDS", tests::seeds(1, 3))) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    expect_right(with_products_for_tensor_cores(random.program, seed), random.sizes, "");
  }
}

}  // namespace
}  // namespace coda::gpu
