// SPDX-License-Identifier: Apache-2.0
// Where a kernel's registers spill, its program is made with the next configuration; what the
// compiler said is kept in the cache; where all of them spill, the one that spills least serves.
// Who must not wait for the compiler finds every configuration that is compiled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "coda/kernels.h"
#include "gpu/codegen/gemm_program.h"
#include "gpu/jit/kernel_builder.h"
#include "gpu/lower.h"
#include "gpu/nvrtc.h"
#include "io/temp_folder.h"

namespace coda::gpu {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Two multiples of a gradient in fp32, with scales of rows and columns: by the model 192x128 is the
// best, whose 192 accumulators leave no room for the scales and for the addresses of both.
const Program& weight_gradient() {
  static const Program program = parse_program(R"(program gradient {
    acc = gemm(dy[K, M]:bf16, x[K, N]:bf16, tn)
    store(dw, acc * per_column(norm[N]) * per_row(r[M]) * scalar(scale))
    store(dv, acc * per_column(other[N]) * per_row(s[M]))
  })");
  return program;
}
const DimValues kFarSizes{{"M", 32768}, {"N", 2048}, {"K", 3000}};

// Each tile and schedule once, so that a kernel which always spills is compiled a few times.
TEST(SpilledChoice, TheNextIsOfAnotherTileOrSchedule) {
  std::set<std::string> texts;
  std::set<std::string> shapes;  // tile and schedule, as the texts have them
  const auto spilled = [&](const std::string& text) {
    if (!texts.insert(text).second) return 16;
    const auto line = [&](const std::string& word, const std::string& end) {
      const size_t begin = text.find(word);
      return text.substr(begin, text.find(end, begin) - begin);
    };
    shapes.insert(line(".tile_m", ", .cluster") + line("Schedule::", ", .layout"));
    return 16;
  };
  lower(weight_gradient(), kFarSizes, {}, spilled);
  EXPECT_GT(texts.size(), 5U);
  EXPECT_EQ(texts.size(), shapes.size());
}

TEST(SpilledChoice, TheFirstThatDoesNotSpillIsTaken) {
  LowerOptions options;
  const std::string first =
      code(GemmProgram(weight_gradient(), kFarSizes, options).chosen(0).choice);
  std::set<std::string> spilled;
  const auto bytes = [&](const std::string& text) { return spilled.contains(text) ? 8 : 0; };
  const GemmProgram program(weight_gradient(), kFarSizes, options);
  spilled.insert(make(program.planned(0), bytes).launch.source);
  const MadeWay second = make(program.planned(0), bytes);
  const ChosenConfig chosen = program.chosen(0, bytes);
  EXPECT_NE(code(chosen.choice), first);
  EXPECT_EQ(program.emit(0, chosen.choice).source, second.launch.source);
  EXPECT_THAT(text(chosen), HasSubstr("registers spill with " + first));
  EXPECT_EQ(second.launch.note, "");
  spilled.insert(second.launch.source);
  EXPECT_THAT(text(program.chosen(0, bytes)),
              HasSubstr("with " + first + ", " + code(chosen.choice)));
}

TEST(SpilledChoice, WhereAllSpillTheLeastServesAndTheNoteSaysSo) {
  std::string least;
  int64_t asked = 0;
  // 40, 30, 20, 10, 11, 12, ...
  std::map<std::string, int64_t> bytes;
  const auto spilled = [&](const std::string& text) {
    const auto [found, is_new] = bytes.try_emplace(text, asked < 4 ? 40 - 10 * asked : 7 + asked);
    if (is_new && asked++ == 3) least = text;
    return found->second;
  };
  const std::vector<KernelLaunch> launches = lower(weight_gradient(), kFarSizes, {}, spilled);
  ASSERT_GT(asked, 5);
  ASSERT_EQ(launches.size(), 1U);
  EXPECT_EQ(launches.front().source, least);
  EXPECT_THAT(launches.front().note,
              HasSubstr("the kernel of program 'gradient' spills registers with every "
                        "configuration, least with "));
}

// What was asked for is made so, and nothing else is tried.
TEST(SpilledChoice, AChoiceThatWasAskedForStays) {
  LowerOptions options;
  options.choice = parse_choice("192x128p12s4");
  const auto spilled = [](const std::string&) { return 8; };
  const KernelLaunch launch = lower(weight_gradient(), kFarSizes, options, spilled).front();
  EXPECT_THAT(launch.source, HasSubstr(".tile_m = 192, .tile_n = 128"));
  EXPECT_THAT(launch.note, HasSubstr("'gradient' spills registers with 192x128 ping-pong"));
}

// Of few rows and of many, which have different best configurations, each finds the other's.
TEST(SpilledChoice, WhatIsCompiledForOtherSizesIsFoundAndNothingElse) {
  const Program scaled = parse_program(R"(program scaled {
    acc = gemm(x[M, 1024]:bf16, w[2048, 1024]:bf16)
    store(y:bf16, acc * per_row(r[M]))
  })");
  const GemmProgram few(scaled, {{"M", 200}}, {});
  const GemmProgram many(scaled, {{"M", 8192}}, {});
  const std::string of_few = make(few.planned(0), {}).launch.source;
  const std::string of_many = make(many.planned(0), {}).launch.source;
  ASSERT_NE(of_few, of_many);
  const auto found = [](const GemmProgram& program, const std::string& compiled) {
    const auto launch = first_ready(program.planned(0),
                                    [&](const std::string& source) { return source == compiled; });
    return launch ? launch->source : "";
  };
  EXPECT_EQ(found(few, of_many), of_many);
  EXPECT_EQ(found(many, of_few), of_few);
  EXPECT_EQ(found(many, of_many), of_many);
  EXPECT_EQ(found(many, "another kernel"), "");

  // Names tell which ways have this source, whatever the sizes, so that nothing else is emitted.
  const auto names_of = [&](const GemmProgram& program) {
    const PlannedKernel kernel = program.planned(0);
    std::set<std::string> names;
    for (size_t way = 0; way < kernel.ways + kernel.more_ways; ++way)
      if (kernel.emit(way).source == of_many) names.insert(kernel.name(way));
    return names;
  };
  const std::set<std::string> names = names_of(many);
  EXPECT_THAT(names, Not(IsEmpty()));
  EXPECT_EQ(names_of(few), names);
  int others = 0;
  const auto is_it = [&](const std::string& source) {
    others += source == of_many ? 0 : 1;
    return source == of_many;
  };
  const auto may_be = [&](const std::string& name) { return names.contains(name); };
  const auto launch = first_ready(few.planned(0), is_it, may_be);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->source, of_many);
  EXPECT_EQ(others, 0);
}

// Also of the two ways with one configuration: tables that are kept during a tile, or not.
TEST(SpilledChoice, WaysOfOneNameHaveOneSource) {
  const Program rope = parse_program(R"(program rope {
    z = gemm(h[M, K]:bf16, w[2048, K]:bf16, nt)
    cos = tile(cos[S, 64], rows=position[M], repeat=16)
    sin = tile(sin[S, 64], rows=position, repeat=16)
    first, second = split_pairs(z, 128)
    store(q:bf16, merge_pairs(first * cos - second * sin, second * cos + first * sin, 128))
  })");
  const GemmProgram program(rope, {{"M", 8192}, {"K", 1024}, {"S", 2048}}, {});
  const PlannedKernel kernel = program.planned(0);
  std::map<std::string, std::string> sources;
  for (size_t way = 0; way < kernel.ways + kernel.more_ways; ++way) {
    const std::string source = kernel.emit(way).source;
    EXPECT_EQ(sources.emplace(kernel.name(way), source).first->second, source) << kernel.name(way);
  }
}

// The compiler itself, for seconds: a kernel that spills and one in its place are compiled. A
// second process compiles neither, and what is emitted then is what runs.
TEST(SpilledChoice, WhatTheCompilerSaidIsKept) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const TempFolder cache;
  setenv("CODA_CACHE_DIR", cache.path().c_str(), 1);
  const Plan plan = one_step_plan(weight_gradient());
  const auto emitted = [&] { return emit_kernels(plan, kFarSizes).front().source; };
  const std::string before = emitted();
  const Precompiled first = precompile({{plan, kFarSizes}});
  const std::string after = emitted();
  const Precompiled second = precompile({{plan, kFarSizes}});
  const std::string chosen_by = kernel_choices(plan, kFarSizes).front().chosen_by;
  KernelBuilder builder;
  const bool spilled = builder.cached_spilled_bytes(before).value_or(0) != 0;
  const bool still_spills = builder.cached_spilled_bytes(after).value_or(0) != 0;
  unsetenv("CODA_CACHE_DIR");
  EXPECT_TRUE(spilled) << "choose another program: this one's first choice does not spill";
  EXPECT_FALSE(still_spills);
  EXPECT_NE(before, after);
  EXPECT_EQ(first.kernels, first.spilled + 1);
  EXPECT_EQ(first.compiled, first.kernels);
  EXPECT_GE(first.spilled, 1);
  EXPECT_THAT(first.defects, IsEmpty());
  EXPECT_EQ(second.compiled, 0);
  EXPECT_EQ(second.spilled, first.spilled);
  EXPECT_THAT(chosen_by, HasSubstr("registers spill with"));
}

}  // namespace
}  // namespace coda::gpu
