// SPDX-License-Identifier: Apache-2.0
// What is tuned of a program, without a GPU: each kernel with products, of split programs too,
// under the key by which its configuration is found when the program is lowered.
#include "measure/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "coda/error.h"
#include "gpu/lower.h"

namespace coda::measure {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const DimValues kSizes{{"M", 256}, {"N", 512}, {"K", 384}, {"H", 6}};

Program whole_program() {
  return parse_program("program whole { store(y:bf16, gemm(x[M, K]:bf16, w[N, K]:bf16)) }");
}

// A norm of each head is no epilogue of a product: what it needs is kept, and normed by a second
// part. The third product reads a kept value.
Program split_in_parts() {
  return parse_program(R"(program heads {
    q = as_stored(gemm(x[M, K]:bf16, wq[64*H, K]:bf16) * per_row(rstd[M]), bf16)
    store(q[M, 64*H]:bf16, q * repeat_group(rsqrt(reduce_group(q * q, 64) + 1e-6), 64))
    a = gemm(x, w[N, K]:bf16)
    b = gemm(z[M, K]:bf16, v[N, K]:bf16)
    store(y:bf16, silu(a) * b + tile(r[M, N]:bf16))
  })");
}

// Strides as a plan's tensors have.
gpu::LowerOptions padded(const Program& program) {
  gpu::LowerOptions options;
  options.uses_table = false;
  for (const TensorDecl& decl : program.tensors) {
    const int64_t columns = decl.shape.cols.evaluate(kSizes);
    options.row_strides.push_back(columns == 1 ? 1 : (columns + 7) / 8 * 8);
  }
  return options;
}

std::vector<std::string> names_of(const std::vector<TuneJob>& jobs) {
  std::vector<std::string> names;
  for (const TuneJob& job : jobs) names.push_back(job.name);
  return names;
}

// "kConfig{...}" of the text of each kernel with products.
std::vector<std::string> configurations(const Program& program, const gpu::LowerOptions& options) {
  std::vector<std::string> all;
  for (const gpu::KernelLaunch& launch : gpu::lower(program, kSizes, options)) {
    const size_t begin = launch.source.find("kConfig{");
    if (begin == std::string::npos) continue;
    all.push_back(launch.source.substr(begin, launch.source.find(".layout", begin) - begin));
  }
  return all;
}

// Of a text, what stands between two others, the first that there are.
std::string field_of(const std::string& text, const std::string& before, const std::string& after) {
  const size_t begin = text.find(before) + before.size();
  return text.substr(begin, text.find(after, begin) - begin);
}

TEST(TuneJobs, AreTheKernelsWithProductsOfAProgramOrOfItsParts) {
  const Program whole = whole_program();
  EXPECT_THAT(names_of(tune_jobs(whole, kSizes, padded(whole))), ElementsAre("whole"));
  const Program split = split_in_parts();
  EXPECT_THAT(names_of(tune_jobs(split, kSizes, padded(split))),
              ElementsAre("heads_part1", "heads_part2"));
}

TEST(TuneJobs, OfAProgramWithoutAProductAreNone) {
  const Program copy = parse_program("program copy { store(y:bf16, tile(x[M, N]:bf16)) }");
  EXPECT_TRUE(tune_jobs(copy, kSizes, padded(copy)).empty());
}

// A plain kernel makes it, which has no configurations.
TEST(TuneJobs, OfAProductInFp32AreNone) {
  const Program single = parse_program("program p { store(y, gemm(x[M, K], w[N, K])) }");
  EXPECT_TRUE(tune_jobs(single, kSizes, padded(single)).empty());
}

// What is timed for a part has its epilogue: the same text as what is lowered, but for names.
TEST(TuneJobs, ThatAreTimedAreWhatIsLowered) {
  const Program program = split_in_parts();
  const std::vector<TuneJob> jobs = tune_jobs(program, kSizes, padded(program));
  std::vector<gpu::KernelLaunch> lowered;
  for (gpu::KernelLaunch& launch : gpu::lower(program, kSizes, padded(program)))
    if (!launch.maps.empty()) lowered.push_back(std::move(launch));
  ASSERT_EQ(lowered.size(), jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    const std::vector<gpu::KernelLaunch> timed = tuned_launches(jobs[i], {.most = 1});
    EXPECT_EQ(timed.front().numbers, lowered[i].numbers) << jobs[i].name;
    EXPECT_EQ(timed.front().shared_bytes, lowered[i].shared_bytes);
    EXPECT_EQ(timed.front().maps.size(), lowered[i].maps.size());
    EXPECT_EQ(timed.front().pointers.size(), lowered[i].pointers.size());
  }
}

// Whatever was fastest is taken when the program is lowered, for each part its own.
TEST(TuneJobs, ResultsAreFoundWhenTheProgramIsLowered) {
  for (const Program& program : {whole_program(), split_in_parts()}) {
    gpu::LowerOptions options = padded(program);
    const std::vector<std::string> usual = configurations(program, options);
    const std::vector<TuneJob> jobs = tune_jobs(program, kSizes, options);
    auto rows = std::make_shared<gpu::TunedRows>();
    for (const TuneJob& job : jobs) {
      const gpu::GemmProgram part(job.program, job.sizes, job.options);
      const std::vector<gpu::RankedChoice> ranked = part.ranked(job.kernel);
      rows->set(class_of(job), {{ranked.back().choice, 1.0}, {ranked.front().choice, 2.0}});
    }
    options.tuned = rows;
    const std::vector<std::string> tuned = configurations(program, options);
    ASSERT_EQ(tuned.size(), usual.size());
    for (size_t i = 0; i < tuned.size(); ++i) EXPECT_NE(tuned[i], usual[i]) << program.name;
  }
}

// Of each tile with each schedule, however the model ranks it: a table is made of all of them.
TEST(TunedLaunches, OfDiverseOnesHaveEveryTileWithEverySchedule) {
  const Program program = whole_program();
  const std::vector<TuneJob> jobs = tune_jobs(program, kSizes, padded(program));
  std::set<std::string> all;
  for (const gpu::KernelLaunch& launch :
       tuned_launches(jobs.front(), {.most = 24, .is_diverse = true})) {
    const std::string tile = field_of(launch.source, ".tile_m = ", ", .cluster_m");
    all.insert(tile + " " + field_of(launch.source, "Schedule::", ","));
  }
  for (const gpu::TileKind& kind : gpu::sm90().tiles) {
    const bool is_cooperative = kind.schedule == device::Schedule::cooperative;
    EXPECT_EQ(all.count(std::to_string(kind.m) + ", .tile_n = " + std::to_string(kind.n) +
                        (is_cooperative ? " cooperative" : " ping_pong")),
              1U)
        << kind.m << "x" << kind.n << (is_cooperative ? " cooperative" : " ping-pong");
  }
  EXPECT_EQ(all.size(), gpu::sm90().tiles.size());
}

}  // namespace
}  // namespace coda::measure
