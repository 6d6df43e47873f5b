// SPDX-License-Identifier: Apache-2.0
// Every program of the LLaMA and GPT-2 plans alone, with rows apart as in a padded buffer and
// dense, against its meaning in float64 (program_check.h). Needs a GPU; skipped elsewhere.
#include "on_gpu/on_gpu.h"
#include "on_gpu/plan_cases.h"
#include "on_gpu/program_check.h"

namespace coda::tests {
namespace {

using PlanPrograms = OnGpuWith<std::tuple<size_t, DType, bool>>;

// Each once: layers of a model share them. `dims` gets the blocks of the plans' loops.
std::vector<Program> distinct_programs(const PlanCase& plan_case, const ModelSizes& sizes,
                                       DType storage, DimValues& dims) {
  std::map<std::string, Program> by_text;
  for (const Objective objective : {Objective::memory, Objective::speed}) {
    Block b;
    const Plan plan = plan_of(plan_case, sizes, storage, b, objective);
    for (const RowBlocks& loop : plan.loops) dims[loop.symbol] = std::min(loop.rows, sizes.tokens);
    for (Program& program : programs_of(plan)) {
      const std::string name = program.name;
      program.name = "p";
      std::string key = text(program);
      program.name = name;
      by_text.emplace(std::move(key), std::move(program));
    }
  }
  std::vector<Program> programs;
  for (auto& [key, program] : by_text) programs.push_back(std::move(program));
  return programs;
}

TEST_P(PlanPrograms, AgreeWithFloat64) {
  const auto [which, storage, ragged] = GetParam();
  const ModelSizes sizes = ragged ? ragged_sizes() : even_sizes();
  const RowGaps gaps = ragged ? RowGaps{.gap = 0, .multiple = 1} : RowGaps{.gap = 8, .multiple = 8};
  DimValues dims = dims_of(sizes);
  const auto programs = distinct_programs(plan_cases()[which], sizes, storage, dims);
  check_all(programs, dims, 1000, gaps, kSinglePrecision);
  std::cout << programs.size() << " programs\n";
}

INSTANTIATE_TEST_SUITE_P(Models, PlanPrograms,
                         ::testing::Combine(::testing::Values<size_t>(0, 1, 2),
                                            ::testing::Values(DType::bf16, DType::f16),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(plan_cases()[std::get<0>(info.param)].name) + "_" +
                                  std::string(name_of(std::get<1>(info.param))) +
                                  (std::get<2>(info.param) ? "_ragged" : "");
                         });

}  // namespace
}  // namespace coda::tests
