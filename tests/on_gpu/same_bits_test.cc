// SPDX-License-Identifier: Apache-2.0
// Every tile, cluster and schedule that a program can be made with gives the same bits, on a GPU of
// any size: with 132 multiprocessors and with 4, where each takes many tiles one after another.
// Needs a GPU; skipped elsewhere.
#include <set>
#include <tuple>

#include "gpu/configure/choose_config.h"
#include "gpu/lower.h"
#include "on_gpu/on_gpu.h"
#include "on_gpu/program_check.h"

namespace coda::tests {
namespace {

// One number of stages for each tile, cluster and schedule: the one that ranks first.
std::vector<gpu::LowerOptions> configurations(const Program& program, const DimValues& sizes) {
  std::set<std::tuple<uint32_t, uint32_t, device::Schedule, uint32_t, uint32_t>> seen;
  std::vector<gpu::LowerOptions> all;
  for (const gpu::GemmConfig& choice : gpu::legal_choices(program, sizes, {})) {
    const bool is_new = seen.insert({choice.tile_m, choice.tile_n, choice.schedule,
                                     choice.cluster_m, choice.cluster_n})
                            .second;
    if (!is_new) continue;
    for (const uint32_t multiprocessors : {132U, 4U}) {
      gpu::LowerOptions& options = all.emplace_back();
      options.multiprocessors = multiprocessors;
      options.choice = choice;
    }
  }
  return all;
}

// The programs of the library, a quarter of them each.
constexpr size_t kParts = 4;
using SameBits = OnGpuWith<size_t>;

TEST_P(SameBits, ForEveryTile) {
  const DimValues all_sizes{{"M", 392}, {"N", 520}, {"K", 200}, {"S", 50}, {"H", 3}};
  int runs = 0;
  uint64_t seed = 500;
  const auto programs = written_programs("programs");
  for (size_t i = GetParam(); i < programs.size(); i += kParts) {
    const Program& program = programs[i];
    const DimValues sizes = bind(program, all_sizes);
    const auto options = configurations(program, sizes);
    SCOPED_TRACE(program.name + " with" + sizes_text(sizes) + ", seed " + std::to_string(++seed));
    const Values inputs = random_inputs(program, sizes, seed);
    try {
      std::vector<std::pair<const Program*, gpu::LowerOptions>> kernels{{&program, {}}};
      for (const gpu::LowerOptions& one : options) kernels.emplace_back(&program, one);
      const RowGaps gaps{.gap = 0, .multiple = 8};
      compile_ahead(kernels, sizes, gaps);
      const Values chosen = run_on_gpu(program, sizes, inputs, gaps);
      for (const gpu::LowerOptions& one : options) {
        expect_same_bits(chosen, run_on_gpu(program, sizes, inputs, gaps, one),
                         "with " + gpu::text(*one.choice) + " on " +
                             std::to_string(one.multiprocessors) + " multiprocessors");
        ++runs;
      }
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  std::cout << runs << " configurations\n";
}

INSTANTIATE_TEST_SUITE_P(Parts, SameBits, ::testing::Range<size_t>(0, kParts));

}  // namespace
}  // namespace coda::tests
