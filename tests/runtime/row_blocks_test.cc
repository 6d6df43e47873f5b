// SPDX-License-Identifier: Apache-2.0
// Sessions that run steps block after block: for any number of rows a block the results are those
// of all rows at once, what only the loop sees takes the memory of one block, and a loop that
// cannot be run is refused when the session is made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "coda/error.h"
#include "coda/session.h"
#include "runtime/arena.h"
#include "runtime/owned_tensor.h"
#include "runtime/plan_programs.h"
#include "runtime/reference_backend.h"

namespace coda {
namespace {

using testing::HasSubstr;

PlanTensor loop_tensor(const std::string& name, const Shape& shape, TensorRole role,
                       int loop = -1) {
  PlanTensor t{TensorDecl{name, shape}, role};
  t.loop = loop;
  return t;
}

PlanStep in_loop(const std::string& program, const std::string& later = "") {
  PlanStep step{"", StepRole::gemm, parse_program(program), {}};
  step.name = std::get<Program>(step.work).name;
  step.loop = 0;
  if (!later.empty()) step.later = parse_program(later);
  return step;
}

// y = x wᵀ, z = max(y, 0), out = the sum of each row of z, s = zᵀ x: y, z and the partials are the
// loop's alone, x and out are cut into blocks, s is a sum over all.
Plan plan_in_blocks(int64_t rows) {
  Plan plan;
  const Dim m("M");
  plan.tensors = {loop_tensor("x", {m, 3}, TensorRole::input),
                  loop_tensor("w", {70, 3}, TensorRole::parameter),
                  loop_tensor("y", {m, 70}, TensorRole::temporary, 0),
                  loop_tensor("z", {m, 70}, TensorRole::temporary, 0),
                  loop_tensor("p", {m, 70}, TensorRole::temporary, 0),
                  loop_tensor("out", {m, 1}, TensorRole::output),
                  loop_tensor("s", {70, 3}, TensorRole::output)};
  plan.tensors[4].decl.kind = TensorKind::row_partial;
  plan.forward = {in_loop(R"(program a {
                              y = gemm(x[M, 3], w[70, 3])
                              store(y, y)
                            })"),
                  in_loop(R"(program b {
                              z = max(tile(y[M, 70]), 0)
                              store(z, z)
                              row_partial(p, sum(z))
                            })"),
                  in_loop(R"(program c {
                              store(out, combine_rows(sum(p[M, 70])))
                            })"),
                  in_loop(R"(program d {
                              s = gemm(z[M, 70], x[M, 3], tn)
                              store(s, s)
                            })",
                          R"(program d {
                              tensors(z, x, s)
                              acc = gemm(z[M, 70], x[M, 3], tn)
                              store(s, tile(s[70, 3]) + acc)
                            })")};
  plan.loops = {{"M", rows, {"s"}}};
  return plan;
}

struct Results {
  std::vector<double> out, s;
  int64_t arena_bytes = 0;
};

Results run(int64_t count, int64_t rows) {
  ReferenceBackend backend;
  Session session(plan_in_blocks(rows), backend, {{"M", count}}, {.timing = true, .poison = true});
  OwnedTensor x(DType::f32, count, 3, 2), w(DType::f32, 70, 3), out(DType::f32, count, 1, 1),
      s(DType::f32, 70, 3);
  x.randomise(1), w.randomise(2);
  session.bind("x", x.view()), session.bind("w", w.view());
  session.bind("out", out.view()), session.bind("s", s.view());
  session.forward();
  session.forward();  // a second run does not add to the first one's sums
  EXPECT_EQ(session.forward_timings().size(), 4U);
  return {out.values(), s.values(), session.arena_bytes()};
}

TEST(RowBlocks, AnyNumberOfRowsABlockGivesTheResultsOfAllAtOnce) {
  for (const int64_t count : {1, 2, 7, 12}) {
    const Results whole = run(count, count);
    for (const int64_t rows : {1, 2, 3, 5, 7, 100}) {
      SCOPED_TRACE(std::to_string(count) + " rows, " + std::to_string(rows) + " a block");
      const Results blocks = run(count, rows);
      EXPECT_EQ(blocks.out, whole.out);
      EXPECT_LT(relative_error(blocks.s, whole.s), 3e-7);
    }
  }
}

// So a GPU's copy engine can read the logits of a vocabulary of any size. Vectors and fp32 are
// dense.
TEST(RowBlocks, RowsOf16BitsThatOnlyTheLoopSeesBeginAtMultiplesOf16Bytes) {
  Plan plan = plan_in_blocks(5);
  for (const int y : {2, 3}) plan.tensors[y].decl.dtype = DType::bf16;
  const auto typed = [](Program& program) {
    for (TensorDecl& decl : program.tensors)
      if (decl.name == "y" || decl.name == "z") decl.dtype = DType::bf16;
  };
  for (PlanStep& step : plan.forward) {
    typed(std::get<Program>(step.work));
    if (step.later) typed(*step.later);
  }
  const std::vector<AnnouncedProgram> programs = programs_of(plan, {{"M", 12}});
  EXPECT_EQ(programs.front().row_strides, (std::vector<int64_t>{3, 3, 72}));  // x, w, y
  EXPECT_TRUE(programs.front().owns_padding);
  ReferenceBackend backend;
  Session session(plan, backend, {{"M", 12}}, {.poison = true});
  OwnedTensor x(DType::f32, 12, 3), w(DType::f32, 70, 3), out(DType::f32, 12, 1),
      s(DType::f32, 70, 3);
  x.randomise(1), w.randomise(2);
  session.bind("x", x.view()), session.bind("w", w.view());
  session.bind("out", out.view()), session.bind("s", s.view());
  session.forward();
  EXPECT_LT(relative_error(out.values(), run(12, 12).out), 1e-2);  // a value's rounding is 2^-9
  EXPECT_LT(relative_error(s.values(), run(12, 12).s), 1e-2);
}

TEST(RowBlocks, WhatOnlyTheLoopSeesHasMemoryForOneBlock) {
  constexpr int64_t kRow = 70 * 4;
  const auto lines = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  for (const int64_t rows : {1, 8, 50}) {
    // y and z are alive together; the partials take y's place.
    EXPECT_EQ(run(50, rows).arena_bytes, 2 * lines(rows * kRow) + lines(rows * 2 * 4));
  }
}

// A tensor that is not the loop's keeps its memory from the first block to the last, though no
// step behind the one that reads it is in its way.
TEST(RowBlocks, WhatAllBlocksReadIsNotOverwrittenByTheFirst) {
  Plan plan = plan_in_blocks(2);
  plan.tensors[0].role = TensorRole::temporary;
  plan.tensors.push_back(loop_tensor("given", {Dim("M"), 3}, TensorRole::input));
  PlanStep copy{"copy",
                StepRole::tile,
                parse_program("program copy {\n store(x, tile(given[M, 3]) * 1)\n}"),
                {}};
  plan.forward.insert(plan.forward.begin(), copy);
  const ArenaPlan arena = plan_arena(plan, {{"M", 7}});
  const ArenaSlot& x = arena.temporaries.at("x");
  EXPECT_EQ(x.first_step, 0);
  EXPECT_EQ(x.last_step, 4);
  for (const char* local : {"y", "z", "p"}) {
    const ArenaSlot& slot = arena.temporaries.at(local);
    EXPECT_TRUE(slot.offset + slot.bytes <= x.offset || x.offset + x.bytes <= slot.offset) << local;
  }
}

std::string refusal(const Plan& plan) {
  ReferenceBackend backend;
  try {
    Session session(plan, backend, {{"M", 7}});
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RowBlocks, ALoopThatCannotBeRunIsRefused) {
  EXPECT_EQ(refusal(plan_in_blocks(3)), "accepted");

  Plan plan = plan_in_blocks(3);  // partials along columns end every 64 rows
  plan.forward[1] =
      in_loop("program b {\n z = tile(y[M, 70]) * 1\n store(z, z)\n column_partial(p, sum(z))\n}");
  plan.forward.erase(plan.forward.begin() + 2);
  plan.tensors[4].decl.kind = TensorKind::column_partial;
  plan.tensors[4].loop = -1;
  EXPECT_THAT(refusal(plan), HasSubstr("partial 'p' cannot be cut into blocks of 3 rows"));
  plan.loops[0].rows = 64;
  EXPECT_EQ(refusal(plan), "accepted");

  plan = plan_in_blocks(3);
  plan.forward[3].later = parse_program("program d {\n store(y, tile(z[M, 70]) * 1)\n}");
  EXPECT_THAT(refusal(plan), HasSubstr("step 'd' has other tensors in later blocks"));

  plan = plan_in_blocks(3);
  OpaqueCall call;
  call.function = "embedding";
  call.inputs = {"x", "w"};
  call.outputs = {"y"};
  plan.forward[0].work = call;
  EXPECT_THAT(refusal(plan), HasSubstr("calls a function in a loop over row blocks"));

  plan = plan_in_blocks(3);
  plan.forward[3].loop = -1;
  EXPECT_THAT(refusal(plan), HasSubstr("step 'd' names 'z', which only a loop sees"));

  plan = plan_in_blocks(3);
  plan.loops.clear();
  EXPECT_THAT(refusal(plan), HasSubstr("the plan has no loop over row blocks 0"));
}

}  // namespace
}  // namespace coda
