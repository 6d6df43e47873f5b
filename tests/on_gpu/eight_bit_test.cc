// SPDX-License-Identifier: Apache-2.0
// Operands of 8 bits: products are right and have the same bits for every tile, in both ways of
// summing; numbers become the codes that coda/float8.h says. Needs a GPU; skipped elsewhere.
#include <cmath>
#include <initializer_list>
#include <span>

#include "base/stored_element.h"
#include "coda/float8.h"
#include "gpu/configure/choose_config.h"
#include "gpu/eight_bit_programs.h"
#include "gpu/lower.h"
#include "on_gpu/on_gpu.h"
#include "on_gpu/program_check.h"

namespace coda::tests::eight_bits {
namespace {

using EightBits = WithEightBits<OnGpu>;
using Bytes = OnGpu;

// What tensor cores drop of a sum of 8-bit products: an instruction sums 32 of them, and cuts off
// what is below 14 bits of the largest.
double dropped(int64_t length) { return static_cast<double>(length) / 32 * std::ldexp(1, -13); }

// One depth of each tile and schedule that the program may have, or its plain kernel where it may
// have none; `fast`: summed by the tensor cores alone.
void expect_same_bits_for_every_tile(const Program& program, const DimValues& sizes,
                                     const Values& inputs, const RowGaps& gaps, bool fast) {
  std::vector<std::pair<const Program*, gpu::LowerOptions>> kernels;
  gpu::LowerOptions options;
  options.fast_accumulation = fast;
  const std::vector<gpu::GemmConfig> choices = gpu::legal_choices(program, sizes, options);
  if (choices.empty()) kernels.emplace_back(&program, options);
  for (const gpu::GemmConfig& choice : choices) {
    if (choice.stages != 3) continue;
    options.choice = choice;
    kernels.emplace_back(&program, options);
  }
  compile_ahead(kernels, sizes, gaps);
  std::optional<Values> first;
  for (const auto& [same, with] : kernels) {
    const Values own = run_on_gpu(program, sizes, inputs, gaps, with);
    if (!first) first = own;
    expect_same_bits(*first, own,
                     program.name + " with " + (with.choice ? gpu::text(*with.choice) : "none"));
  }
  ASSERT_TRUE(first.has_value());
}

void expect_right_for_every_tile(std::span<const char* const> programs, int64_t columns,
                                 uint64_t seed) {
  for (const char* text : programs) {
    const Program program = parse_program(text);
    for (const DimValues& all : {DimValues{{"M", 392}, {"N", columns}, {"K", 400}, {"S", 9}},
                                 DimValues{{"M", 77}, {"N", 96}, {"K", 4112}, {"S", 9}}}) {
      const DimValues sizes = bind(program, all);
      const RowGaps gaps{.gap = 0, .multiple = 16};
      SCOPED_TRACE(program.name);
      // Longer sums are made in fp32.
      check(program, sizes, ++seed, gaps, dropped(std::min<int64_t>(sizes.at("K"), 4096)));
      const Values inputs = random_inputs(program, sizes, seed);
      for (const bool fast : {false, true})
        expect_same_bits_for_every_tile(program, sizes, inputs, gaps, fast);
    }
  }
}

TEST_F(EightBits, ProductsAreRightWithTheSameBitsForEveryTile) {
  expect_right_for_every_tile(kEightBitProducts, 520, 800);
}

TEST_F(EightBits, LoadsAreRightWithTheSameBitsForEveryTile) {
  expect_right_for_every_tile(kEightBitLoads, 528, 840);
}

// Operands with scales, at whole sizes and at ragged ones. Each sum of `summed` terms is promoted,
// by every tile.
void expect_right_with_scales(std::span<const char* const> programs,
                              std::initializer_list<DimValues> all_sizes, int64_t summed,
                              uint64_t seed) {
  const RowGaps gaps{.gap = 0, .multiple = 16};
  for (const char* text : programs) {
    const Program program = parse_program(text);
    for (const DimValues& all : all_sizes) {
      const DimValues sizes = bind(program, all);
      SCOPED_TRACE(program.name);
      check(program, sizes, ++seed, gaps, dropped(summed));
      const Values inputs = random_inputs(program, sizes, seed);
      expect_same_bits_for_every_tile(program, sizes, inputs, gaps, false);
    }
  }
}

TEST_F(EightBits, ScaledProductsAreRightWithTheSameBitsForEveryTile) {
  expect_right_with_scales(kScaledProducts,
                           {{{"M", 392}, {"B", 4}, {"C", 4}}, {{"M", 77}, {"B", 33}, {"C", 3}}},
                           kScaleSpan, 850);
}

TEST_F(EightBits, TilesFindTheScalesOfTheirRows) {
  for (const char* text : kQuantisedTiles)
    for (const int64_t columns : {1, 16})
      check(parse_program(text), {{"M", 333}, {"C", columns}}, 9, {.gap = 0, .multiple = 16},
            kSinglePrecision);
}

TEST_F(EightBits, TilesAreRight) {
  for (const char* text : kEightBitTiles)
    for (const int64_t columns : {1, 67, 136, 2048})
      check(parse_program(text), {{"M", 333}, {"N", columns}}, 7, {.gap = 0, .multiple = 16},
            kSinglePrecision);
}

// Every pair of neighbouring codes: themselves, the middle between them, and a bit to either side;
// beyond the largest, and what is no number.
TEST_F(EightBits, NumbersBecomeTheNearestCode) {
  for (const DType type : {DType::e4m3, DType::e5m2}) {
    const Float8Format& format = type == DType::e4m3 ? kE4m3 : kE5m2;
    std::vector<double> numbers{0.0, -0.0, 1e30, -1e30, 1e-30, INFINITY, -INFINITY, NAN};
    for (int code = 0; code < format.largest; ++code) {
      const float low = float_from_8_bits(format, static_cast<uint8_t>(code));
      const float high = float_from_8_bits(format, static_cast<uint8_t>(code + 1));
      const float middle = low + (high - low) / 2;
      for (const float x :
           {low, high, middle, std::nextafter(middle, low), std::nextafter(middle, high)}) {
        numbers.push_back(x);
        numbers.push_back(-x);
      }
    }
    const std::string name(name_of(type));
    const Program program =
        parse_program("program rounds {\n  store(y[M, N]:" + name + ", tile(x[M, N]) * 1)\n}");
    const DimValues sizes{{"M", 1}, {"N", static_cast<int64_t>(numbers.size())}};
    const Values results = run_on_gpu(program, sizes, {{"x", numbers}}, {.gap = 0, .multiple = 16});
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double wanted =
          float_from_8_bits(format, float_to_8_bits(format, static_cast<float>(numbers[i])));
      const double got = results.at("y")[i];
      EXPECT_TRUE(std::isnan(wanted) ? std::isnan(got) : got == wanted)
          << name << " of " << numbers[i] << ": " << got << " instead of " << wanted;
    }
  }
}

// Whole numbers of a byte: ties to even, and what is outside of them, or no number.
TEST_F(Bytes, NumbersBecomeTheNearestWholeNumber) {
  std::vector<double> numbers{-1, -0.5, 255.49, 255.5, 1e30, -1e30, INFINITY, -INFINITY, NAN};
  for (int i = 0; i < 256; ++i)
    for (const double x : {0.0, 0.5, 0.49999, 0.50001}) numbers.push_back(i + x);
  const Program program =
      parse_program("program rounds {\n  store(y[M, N]:u8, tile(x[M, N]) * 1)\n}");
  const DimValues sizes{{"M", 1}, {"N", static_cast<int64_t>(numbers.size())}};
  const Values results = run_on_gpu(program, sizes, {{"x", numbers}}, {.gap = 0, .multiple = 16});
  for (size_t i = 0; i < numbers.size(); ++i)
    EXPECT_EQ(results.at("y")[i], rounded_to(DType::u8, numbers[i])) << numbers[i];
}

}  // namespace
}  // namespace coda::tests::eight_bits
