// SPDX-License-Identifier: Apache-2.0
// Programs on the GPU against their meaning in float64 (program_check.h): written ones and random
// ones. Needs a GPU; skipped elsewhere.
#include "hopper_gpu/program_check.h"
#include "hopper_gpu/on_gpu.h"

namespace coda::testing {
namespace {

using WrittenPrograms = OnGpu;

TEST_F(WrittenPrograms, OfTheBenchmark) {
  const std::vector<DimValues> shapes{
      {{"M", 128}, {"N", 256}, {"K", 64}, {"S", 50}},
      {{"M", 300}, {"N", 392}, {"K", 200}, {"S", 50}},
      {{"M", 1}, {"N", 8}, {"K", 8}, {"S", 3}},
      {{"M", 520}, {"N", 1000}, {"K", 136}, {"S", 50}},
  };
  for (const Program& program : written_programs("bench/hopper_programs/programs")) {
    uint64_t seed = 1;
    for (const DimValues& sizes : shapes) {
      check(program, bind(program, sizes), seed++, {.gap = 0, .multiple = 8}, kSinglePrecision);
    }
  }
}

// Sizes and pitches that the copy engine cannot address.
TEST_F(WrittenPrograms, WithUnalignedRows) {
  const std::vector<DimValues> shapes{{{"M", 77}, {"N", 129}, {"K", 65}, {"S", 50}},
                                      {{"M", 130}, {"N", 67}, {"K", 31}, {"S", 9}}};
  for (const Program& program : written_programs("bench/hopper_programs/programs")) {
    uint64_t seed = 11;
    for (const DimValues& sizes : shapes) {
      check(program, bind(program, sizes), seed++, {.gap = 3, .multiple = 1}, kSinglePrecision);
    }
  }
}

TEST_F(WrittenPrograms, OfTheExamplesIn16Bits) {
  const DimValues sizes{{"M", 200}, {"D", 328}, {"I", 264}};
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const Program& program : written_programs("examples/programs")) {
      check(with_storage(program, type), bind(program, sizes), 21, {.gap = 0, .multiple = 8},
            kSinglePrecision);
    }
  }
}

using RandomPrograms = OnGpu;

// What the backend refuses (docs/gpu.md) it refuses with an error, before anything runs.
TEST_F(RandomPrograms, AgreeWithFloat64) {
  constexpr int kChecked = 60;
  int checked = 0;
  int refused = 0;
  for (uint64_t seed = 1; checked < kChecked; ++seed) {
    const RandomProgram random = random_program(seed);
    const Program program = with_operands(random.program, seed % 2 == 0 ? DType::bf16 : DType::f16);
    const RowGaps gaps = seed % 3 == 0 ? RowGaps{} : RowGaps{.gap = 0, .multiple = 8};
    if (!refusal(program, random.sizes).empty()) {
      ++refused;
      continue;
    }
    ++checked;
    check(program, random.sizes, seed, gaps, kRandomPrograms);
    if (random.finalizer) check(*random.finalizer, random.sizes, seed, gaps, kRandomPrograms);
  }
  std::cout << checked << " random programs ran, " << refused << " were refused\n";
}

}  // namespace
}  // namespace coda::testing
