// SPDX-License-Identifier: Apache-2.0
// Arenas of random plans: no two tensors alive in one step overlap (so nothing is computed in
// place), no arena is larger than its tensors side by side, or than its phases' arenas and what is
// saved apart, or smaller than what one step needs.
#include "runtime/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "coda/error.h"
#include "coda/plan.h"

namespace coda {
namespace {

PlanStep call(const std::string& name, std::vector<std::string> inputs,
              std::vector<std::string> outputs) {
  OpaqueCall call;
  call.function = name;
  call.inputs = std::move(inputs);
  call.outputs = std::move(outputs);
  return {name, StepRole::opaque, call, {}};
}

PlanTensor tensor(const std::string& name, const Shape& shape, TensorRole role,
                  DType dtype = DType::f32) {
  return {TensorDecl{name, shape, dtype}, role};
}

// Steps that read tensors of earlier steps of their phase (saved ones of any) and write one to
// three new ones, some of them outputs. The backward may store over what was saved, for the plans
// with `spends`.
Plan random_plan(uint64_t seed, bool spends = false) {
  std::mt19937_64 random(seed);
  Plan plan;
  std::vector<std::string> saved;
  for (Phase phase : {Phase::forward, Phase::backward}) {
    std::vector<std::string> readable = saved;
    auto& steps = phase == Phase::forward ? plan.forward : plan.backward;
    const uint64_t count = random() % 30;
    for (uint64_t i = 0; i < count; ++i) {
      std::vector<std::string> inputs, outputs;
      for (uint64_t n = readable.empty() ? 0 : random() % 4; n > 0; --n)
        inputs.push_back(
            readable[readable.size() - 1 - random() % std::min<size_t>(readable.size(), 8)]);
      for (uint64_t n = 1 + random() % 3; n > 0; --n) {
        const std::string name = "t" + std::to_string(plan.tensors.size());
        const bool is_saved = phase == Phase::forward && random() % 4 == 0;
        const bool is_output = !is_saved && seed % 3 == 0 && random() % 4 == 0;
        const Shape shape{Dim("M"), Dim(static_cast<int64_t>(1 + random() % 200))};
        plan.tensors.push_back(tensor(name, shape,
                                      is_saved    ? TensorRole::saved
                                      : is_output ? TensorRole::output
                                                  : TensorRole::temporary,
                                      random() % 2 == 0 ? DType::f32 : DType::bf16));
        if (is_saved) saved.push_back(name);
        outputs.push_back(name);
      }
      if (spends && phase == Phase::backward && i == 0 && !saved.empty())
        outputs.push_back(saved.back());
      steps.push_back(call("step" + std::to_string(i), inputs, outputs));
      readable.insert(readable.end(), outputs.begin(), outputs.end());
    }
  }
  return plan;
}

bool overlap(const ArenaSlot& a, const ArenaSlot& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// All slots of an arena, and from which step to which they are alive by the definition: written
// first at or before a step, and read at or after it; what is saved at least until the forward ends
// and, where the backward may run again, to the end, as are results.
struct Life {
  std::string name;
  ArenaSlot slot;
  size_t first = SIZE_MAX;
  size_t last = 0;
};
std::vector<Life> lives(const Plan& plan, const ArenaPlan& arena, bool spends) {
  std::vector<const PlanStep*> steps;
  for (const PlanStep& step : plan.forward) steps.push_back(&step);
  for (const PlanStep& step : plan.backward) steps.push_back(&step);
  std::vector<Life> all;
  for (const auto* slots : {&arena.temporaries, &arena.saved, &arena.results}) {
    for (const auto& [name, slot] : *slots) {
      Life life{name, slot};
      for (size_t i = 0; i < steps.size(); ++i) {
        for (const StepTensor& use : step_tensors(*steps[i])) {
          if (use.name != name) continue;
          life.first = std::min(life.first, i);
          life.last = i;
        }
      }
      if (slots == &arena.saved) life.last = std::max(life.last, plan.forward.size() - 1);
      if (slots == &arena.results || (slots == &arena.saved && !spends))
        life.last = steps.size() - 1;
      all.push_back(life);
    }
  }
  return all;
}

TEST(Arena, TensorsAliveTogetherNeverOverlap) {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const bool own_results = seed / 2 % 2 == 0;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Plan plan = random_plan(seed, seed % 2 == 0);
    const bool spends = spends_saved(plan);
    EXPECT_TRUE(!spends || seed % 2 == 0);
    const ArenaPlan arena =
        plan_arena(plan, {{"M", static_cast<int64_t>(1 + seed % 50)}}, own_results);
    const std::vector<Life> all = lives(plan, arena, spends);
    EXPECT_TRUE(own_results || arena.results.empty());
    std::vector<int64_t> alive(plan.forward.size() + plan.backward.size());
    for (const Life& a : all) {
      ASSERT_LE(a.first, a.last);
      EXPECT_EQ(a.slot.offset % 64, 0);
      EXPECT_LE(a.slot.offset + a.slot.bytes, arena.total_bytes());
      for (size_t i = a.first; i <= a.last; ++i) alive[i] += (a.slot.bytes + 63) / 64 * 64;
      for (const Life& b : all) {
        if (a.name >= b.name || a.first > b.last || b.first > a.last) continue;
        ASSERT_FALSE(overlap(a.slot, b.slot)) << a.name << " and " << b.name;
      }
    }
    const int64_t most = alive.empty() ? 0 : *std::max_element(alive.begin(), alive.end());
    EXPECT_EQ(arena.live_bytes, most - arena.saved_bytes);
    EXPECT_LE(arena.live_bytes, arena.bytes);
    EXPECT_LE(arena.bytes, arena.temporary_bytes);
  }
}

// Places for some results in memory that is lent, in any order and with gaps, and a name that the
// plan does not have.
ResultPlaces random_places(const ArenaPlan& own, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::pair<std::string, int64_t>> results;
  for (const auto& [name, slot] : own.results)
    if (random() % 4 != 0) results.emplace_back(name, (slot.bytes + 63) / 64 * 64);
  std::shuffle(results.begin(), results.end(), random);
  ResultPlaces places{.offsets = {{"elsewhere", 0}}};
  const auto gap = [&] { places.bytes += 64 * static_cast<int64_t>(random() % 3); };
  for (const auto& [name, bytes] : results) {
    gap();
    places.offsets[name] = places.bytes;
    places.bytes += bytes;
  }
  gap();
  return places;
}

// Results lie where they have places, nothing else is there with them, and nothing lies in the gaps
// between them or across the end of what is lent.
TEST(Arena, OfResultsThatHavePlacesHasOthersThereBefore) {
  int64_t apart = 0, shared = 0;
  for (uint64_t seed = 0; seed < 300; seed += 3) {  // those with outputs
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Plan plan = random_plan(seed, seed % 2 == 0);
    const DimValues sizes{{"M", static_cast<int64_t>(1 + seed % 50)}};
    const ResultPlaces places = random_places(plan_arena(plan, sizes, true), seed);
    const ArenaPlan arena = plan_arena(plan, sizes, false, places);
    EXPECT_EQ(arena.lent_bytes, places.bytes);
    EXPECT_EQ(arena.results.size() + 1, places.offsets.size());
    std::vector<Life> all = lives(plan, arena, true);
    for (const auto& [offset, bytes] : arena.untouched)
      all.push_back({"gap", {.offset = offset, .bytes = bytes}, 0, SIZE_MAX});
    for (const Life& a : all) {
      const int64_t end = a.slot.offset + a.slot.bytes;
      EXPECT_TRUE(end <= places.bytes || a.slot.offset >= places.bytes) << a.name;
      EXPECT_LE(end, places.bytes + arena.total_bytes());
      if (const auto place = places.offsets.find(a.name); place != places.offsets.end()) {
        EXPECT_EQ(a.slot.offset, place->second);
      }
      for (const Life& b : all) {
        if (&a == &b || a.first > b.last || b.first > a.last) continue;
        ASSERT_FALSE(overlap(a.slot, b.slot)) << a.name << " and " << b.name;
      }
    }
    const ArenaPlan bound = plan_arena(plan, sizes, false);
    EXPECT_LE(arena.total_bytes(), bound.total_bytes());
    EXPECT_GE(arena.bytes, arena.live_bytes);
    apart += bound.total_bytes() + places.bytes;
    shared += arena.total_bytes() + places.bytes;
  }
  EXPECT_LE(static_cast<double>(shared), 0.9 * static_cast<double>(apart));
}

TEST(Arena, ResultsThatDoNotFitTheirPlacesAreRefused) {
  const Plan plan = random_plan(3);
  const DimValues sizes{{"M", 9}};
  const ArenaPlan own = plan_arena(plan, sizes, true);
  ASSERT_GE(own.results.size(), 2U);
  const std::string first = own.results.begin()->first;
  const std::string second = std::next(own.results.begin())->first;
  const auto refused = [&](int64_t bytes, int64_t of_first, int64_t of_second) {
    try {
      plan_arena(plan, sizes, false, {bytes, {{first, of_first}, {second, of_second}}});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(1 << 20, 0, 1 << 19), "");
  EXPECT_THAT(refused(1 << 20, 0, 0), testing::HasSubstr("byte 0 of lent memory"));
  EXPECT_THAT(refused(1 << 20, 32, 1 << 19), testing::HasSubstr("no multiple of 64"));
  EXPECT_THAT(refused(64, 0, 1 << 19), testing::HasSubstr("of lent memory of 64"));
}

// What a phase takes by itself: what is saved is then the caller's.
int64_t bytes_alone(Plan plan, Phase phase, const DimValues& sizes) {
  (phase == Phase::forward ? plan.backward : plan.forward).clear();
  for (PlanTensor& t : plan.tensors)
    if (t.role == TensorRole::saved) t.role = TensorRole::output;
  return plan_arena(plan, sizes).bytes;
}

TEST(Arena, IsNeverLargerThanItsPhasesAloneAndWhatIsSavedAndTheResultsApart) {
  const DimValues sizes{{"M", 37}};
  int64_t apart = 0, together = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Plan plan = random_plan(seed, seed % 2 == 0);
    const int64_t alone = std::max(bytes_alone(plan, Phase::forward, sizes),
                                   bytes_alone(plan, Phase::backward, sizes));
    EXPECT_LE(plan_arena(plan, sizes).bytes, alone) << "seed " << seed;
    const ArenaPlan own = plan_arena(plan, sizes, true);
    int64_t results = 0;
    for (const auto& [name, slot] : own.results) results += (slot.bytes + 63) / 64 * 64;
    EXPECT_LE(own.bytes, alone + results) << "seed " << seed;
    apart += alone + results + own.saved_bytes;
    together += own.total_bytes();
  }
  EXPECT_LE(static_cast<double>(together), 0.95 * static_cast<double>(apart));
}

// a is done with as b, which is saved, is written, and b as the gradient g is: one after another
// they take the memory of one. A backward that may run again needs b to the end; a caller's g takes
// nothing of the arena.
TEST(Arena, WhatIsSavedLateAndAResultHaveRoomForWhatIsDoneWith) {
  const auto plan = [](bool spends) {
    Plan plan;
    for (const auto& [name, role] : {std::pair{"a", TensorRole::temporary},
                                     {"b", TensorRole::saved},
                                     {"c", TensorRole::saved},
                                     {"g", TensorRole::output}}) {
      plan.tensors.push_back(
          tensor(name, name == std::string("c") ? Shape{1, 16} : Shape{10, 16}, role));
    }
    plan.forward = {call("make", {}, {"a"}), call("shorten", {"a"}, {"c"}),
                    call("make", {"c"}, {"b"})};
    plan.backward = {
        call("use", {"b"}, spends ? std::vector<std::string>{"c"} : std::vector<std::string>{}),
        call("gradient", {"c"}, {"g"})};
    return plan;
  };
  EXPECT_EQ(plan_arena(plan(true), {}, true).total_bytes(), 64 + 640);
  EXPECT_EQ(plan_arena(plan(false), {}, true).total_bytes(), 64 + 2 * 640);
  EXPECT_EQ(plan_arena(plan(false), {}, false).total_bytes(), 64 + 640);
}

// A gradient that is added to has been the caller's before.
TEST(Arena, AnOutputThatIsReadFirstIsNoResultOfTheArena) {
  Plan plan;
  for (const char* name : {"sum", "made"})
    plan.tensors.push_back(tensor(name, Shape{1, 16}, TensorRole::output));
  plan.forward = {call("add", {"sum"}, {"sum", "made"}), call("read", {"made"}, {"sum"})};
  const ArenaPlan arena = plan_arena(plan, {}, true);
  EXPECT_FALSE(arena.results.contains("sum"));
  EXPECT_EQ(arena.results.at("made").last_step, 1);
  EXPECT_EQ(arena.total_bytes(), 64);
}

TEST(Arena, AChainNeedsTwoTensorsHoweverLongItIs) {
  Plan plan;
  for (int i = 0; i < 20; ++i) {
    plan.tensors.push_back(tensor("t" + std::to_string(i), Shape{10, 16}, TensorRole::temporary));
    const std::string before = "t" + std::to_string(i - 1), now = "t" + std::to_string(i);
    plan.forward.push_back(
        call("step", i == 0 ? std::vector<std::string>{} : std::vector{before}, {now}));
  }
  const ArenaPlan arena = plan_arena(plan, {});
  EXPECT_EQ(arena.bytes, 2 * 640);
  EXPECT_EQ(arena.live_bytes, 2 * 640);
  EXPECT_EQ(arena.temporary_bytes, 20 * 640);
}

// Steps of a block's backward: a, b and then c and d are alive together, later d and the large e.
// Largest first, then by age, d would lie behind e, and c find no gap before it.
TEST(Arena, WhatIsAliveAtOnceIsEnoughWhereAnOrderOfPlacingHasIt) {
  Plan plan;
  for (const auto& [name, lines] : {std::pair{"a", 4}, {"b", 4}, {"c", 4}, {"d", 4}, {"e", 11}}) {
    plan.tensors.push_back(tensor(name, Shape{lines, 16}, TensorRole::temporary));
  }
  plan.backward = {call("rotate", {}, {"a", "b"}), call("data gradient", {"a", "b"}, {"d", "c"}),
                   call("weight gradient", {"a", "b", "c"}, {}), call("next", {"d"}, {"e"}),
                   call("last", {"d", "e"}, {})};
  const ArenaPlan arena = plan_arena(plan, {});
  EXPECT_EQ(arena.live_bytes, 16 * 64);
  EXPECT_EQ(arena.bytes, 16 * 64);
}

// Placed once, largest first, 109 of these 300 do, and one needs 1.26 times as much.
TEST(Arena, MostRandomPlansNeedNoMoreThanIsAliveAtOnce) {
  int exact = 0;
  double excess = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const ArenaPlan arena =
        plan_arena(random_plan(seed, seed % 2 == 0), {{"M", 37}}, seed / 2 % 2 == 0);
    const int64_t alive = arena.live_bytes + arena.saved_bytes;
    if (alive == 0) continue;
    const double ratio = static_cast<double>(arena.total_bytes()) / static_cast<double>(alive);
    exact += ratio == 1 ? 1 : 0;
    excess = std::max(excess, ratio - 1);
  }
  EXPECT_GE(exact, 250);
  EXPECT_LE(excess, 0.1);
}

TEST(Arena, ForwardAndBackwardShareMemoryButNotWhatIsSaved) {
  Plan plan;
  plan.tensors = {tensor("a", Shape{1, 160}, TensorRole::temporary),
                  tensor("s", Shape{1, 16}, TensorRole::saved),
                  tensor("b", Shape{1, 320}, TensorRole::temporary)};
  plan.forward = {call("first", {}, {"a"}), call("second", {"a"}, {"s"})};
  plan.backward = {call("third", {"s"}, {"b"})};
  const ArenaPlan arena = plan_arena(plan, {});
  EXPECT_EQ(arena.bytes, 320 * 4);
  EXPECT_EQ(arena.saved_bytes, 64);
  EXPECT_EQ(arena.temporaries.at("b").offset, 0);
}

TEST(Arena, APartialTakesItsLanes) {
  Plan plan;
  TensorDecl decl{"p", Shape{100, 130}, DType::f32, TensorKind::row_partial, 2};
  plan.tensors = {{decl, TensorRole::temporary}};
  plan.forward = {call("step", {}, {"p"})};
  EXPECT_EQ(plan_arena(plan, {}).temporaries.at("p").bytes, 2 * 100 * 3 * 4);
}

TEST(Arena, WhatIsReadMustHaveBeenWritten) {
  auto message = [](const Plan& plan) -> std::string {
    try {
      plan_arena(plan, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  Plan plan;
  plan.tensors = {tensor("a", Shape{1, 8}, TensorRole::temporary),
                  tensor("b", Shape{1, 8}, TensorRole::temporary)};
  plan.forward = {call("early", {"b"}, {"a"}), call("late", {}, {"b"})};
  EXPECT_THAT(message(plan),
              testing::HasSubstr("step 'early' reads 'b' before any step writes it"));
  plan.forward = {call("one", {}, {"a", "b"})};
  plan.backward = {call("two", {"a"}, {})};
  EXPECT_THAT(message(plan),
              testing::HasSubstr("'a', a temporary of the forward; it must be saved"));
  plan.backward = {call("two", {"c"}, {})};
  EXPECT_THAT(message(plan), testing::HasSubstr("'c', which is no tensor of the plan"));
}

}  // namespace
}  // namespace coda
