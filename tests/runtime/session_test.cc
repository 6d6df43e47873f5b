// SPDX-License-Identifier: Apache-2.0
// Sessions over a toy backend whose steps are lambdas: the right memory reaches the right kernel,
// what is saved lasts, wrong bindings are refused in one line, and a forgotten store shows when
// memory is poisoned.
#include "coda/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "base/aligned_buffer.h"
#include "coda/error.h"
#include "runtime/owned_tensor.h"

namespace coda {
namespace {

using Body = std::function<void(std::span<const TensorView>)>;

class ToyKernel : public Kernel {
 public:
  explicit ToyKernel(Body body) : body_(std::move(body)) {}
  void run(std::span<const TensorView> tensors) override { body_(tensors); }

 private:
  Body body_;
};

// Elementwise: "multiply" c = a * b; "square"; "store first" (a kernel that forgets the rest); "add
// into".
class ToyBackend : public Backend {
 public:
  std::string_view name() const override { return "toy"; }
  std::unique_ptr<Kernel> prepare(const Program& program, const DimValues&) override {
    prepared.push_back(program.name);
    return std::make_unique<ToyKernel>(
        [](std::span<const TensorView> t) { write_values(read_values(t[0]), t[1]); });
  }
  std::unique_ptr<Kernel> prepare(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                  const DimValues&) override {
    prepared.push_back(call.function);
    EXPECT_EQ(tensors.size(), call.inputs.size() + call.outputs.size());
    const std::string function = call.function;
    return std::make_unique<ToyKernel>([function](std::span<const TensorView> t) {
      std::vector<double> a = read_values(t[0]);
      const std::vector<double> b = read_values(t[t.size() - 2]);
      if (function == "multiply")
        for (size_t i = 0; i < a.size(); ++i) a[i] *= b[i];
      if (function == "add")
        for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
      if (function == "store first") {
        write_values(std::span(a).first(1), dense_view(t.back().data, t.back().dtype, 1, 1));
        return;
      }
      write_values(a, t.back());
    });
  }
  std::vector<std::string> prepared;
};

PlanStep step(const std::string& function, std::vector<std::string> inputs,
              std::vector<std::string> outputs) {
  OpaqueCall call;
  call.function = function;
  call.inputs = std::move(inputs);
  call.outputs = std::move(outputs);
  return {function + " step", StepRole::opaque, call, {}};
}

PlanTensor tensor(const std::string& name, TensorRole role) {
  return {TensorDecl{name, Shape{Dim("M"), 3}}, role};
}

// s = x * w (saved), t = s * s, y = t * w; backward: u = dy * s, dw += u * x.
Plan toy_plan() {
  Plan plan;
  plan.tensors = {tensor("x", TensorRole::input),     tensor("w", TensorRole::parameter),
                  tensor("s", TensorRole::saved),     tensor("t", TensorRole::temporary),
                  tensor("y", TensorRole::output),    tensor("dy", TensorRole::input),
                  tensor("u", TensorRole::temporary), tensor("v", TensorRole::temporary),
                  tensor("dw", TensorRole::output)};
  plan.forward = {step("multiply", {"x", "w"}, {"s"}), step("multiply", {"s", "s"}, {"t"}),
                  step("multiply", {"t", "w"}, {"y"})};
  plan.backward = {step("multiply", {"dy", "s"}, {"u"}), step("multiply", {"u", "x"}, {"v"}),
                   step("add", {"dw", "v"}, {"dw"})};
  return plan;
}

struct Fixture {
  explicit Fixture(SessionOptions options = {})
      : session(toy_plan(), backend, {{"M", 2}}, options) {
    x.randomise(1), w.randomise(2), dy.randomise(3), dw.set(10.0);
  }
  void bind() {
    session.bind("x", x.view()), session.bind("w", w.view()), session.bind("y", y.view());
    session.bind("dy", dy.view()), session.bind("dw", dw.view());
  }
  ToyBackend backend;
  Session session;
  OwnedTensor x{DType::f32, 2, 3, 4}, w{DType::f32, 2, 3}, y{DType::f32, 2, 3, 1},
      dy{DType::f32, 2, 3}, dw{DType::f32, 2, 3};
};

std::string message(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Session, RunsForwardAndBackwardAndAddsIntoAGradient) {
  for (bool poison : {false, true}) {
    Fixture f({.timing = false, .poison = poison});
    f.bind();
    f.session.forward();
    const std::vector<double> x = f.x.values(), w = f.w.values(), dy = f.dy.values();
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(f.y.values()[i], x[i] * x[i] * w[i] * w[i] * w[i], 1e-5);
    for (int times = 1; times <= 2; ++times) {  // what is saved outlives a backward
      f.session.backward();
      for (size_t i = 0; i < x.size(); ++i)
        EXPECT_NEAR(f.dw.values()[i], 10 + times * dy[i] * x[i] * w[i] * x[i], 1e-4);
    }
  }
}

TEST(Session, PreparesEachStepOnce) {
  Fixture f;
  f.bind();
  f.session.forward();
  f.session.forward();
  f.session.backward();
  EXPECT_EQ(f.backend.prepared.size(), 6u);
}

TEST(Session, ANewBindingTakesEffectAtTheNextRun) {
  Fixture f;
  f.bind();
  f.session.forward();
  OwnedTensor other(DType::f32, 2, 3);
  f.session.bind("y", other.view());
  f.session.forward();
  EXPECT_EQ(other.values(), f.y.values());
  EXPECT_EQ(f.session.view("y").data, other.view().data);
}

TEST(Session, AForgottenStoreShowsAsNaNWhenPoisoned) {
  Plan plan = toy_plan();
  plan.forward[1] = step("store first", {"s", "s"}, {"t"});
  ToyBackend backend;
  Session session(plan, backend, {{"M", 2}}, {.timing = false, .poison = true});
  OwnedTensor x(DType::f32, 2, 3), w(DType::f32, 2, 3), y(DType::f32, 2, 3);
  x.randomise(1), w.randomise(2);
  session.bind("x", x.view()), session.bind("w", w.view()), session.bind("y", y.view());
  session.forward();
  EXPECT_FALSE(std::isnan(y.values()[0]));
  for (size_t i = 1; i < 6; ++i) EXPECT_TRUE(std::isnan(y.values()[i]));

  plan.forward[1] = toy_plan().forward[1];
  plan.forward[2] = step("store first", {"t", "t"}, {"y"});  // an output is poisoned too
  Session forgets_output(plan, backend, {{"M", 2}}, {.timing = false, .poison = true});
  forgets_output.bind("x", x.view()), forgets_output.bind("w", w.view()),
      forgets_output.bind("y", y.view());
  forgets_output.forward();
  EXPECT_TRUE(std::isnan(y.values()[1]));
}

TEST(Session, TimesEachStepIfAsked) {
  Fixture f({.timing = true, .poison = false});
  f.bind();
  f.session.forward();
  ASSERT_EQ(f.session.forward_timings().size(), 3u);
  EXPECT_EQ(f.session.forward_timings()[1].name, "multiply step");
  EXPECT_TRUE(f.session.backward_timings().empty());
  Fixture silent;
  silent.bind();
  silent.session.forward();
  EXPECT_TRUE(silent.session.forward_timings().empty());
}

TEST(Session, StatesItsMemory) {
  Fixture f;
  EXPECT_EQ(f.session.saved_bytes(), 64);      // s: 24 bytes, a line
  EXPECT_EQ(f.session.arena_bytes(), 2 * 64);  // u and v
}

TEST(Session, ItsMemoryMayBeLentForEachRun) {
  Fixture own;
  Fixture f({.own_memory_is_lent = true});
  own.bind(), f.bind();
  ASSERT_GE(f.session.lent_bytes(), own.session.arena_bytes() + own.session.saved_bytes());
  EXPECT_THAT(message([&] { f.session.forward(); }), testing::HasSubstr("not bound"));
  own.session.forward(), own.session.backward();
  for (int times = 0; times < 3; ++times) {  // each time other memory, full of NaN
    const AlignedBuffer memory(static_cast<size_t>(f.session.lent_bytes()));
    std::memset(memory.data(), 0xff, memory.bytes());
    f.dw.set(10.0);
    f.session.lend(memory.data());
    f.session.forward();
    const auto* saved = static_cast<std::byte*>(f.session.view("s").data);
    EXPECT_GE(saved, memory.data());
    EXPECT_LT(saved, memory.data() + memory.bytes());
    f.session.backward();
    EXPECT_EQ(f.y.values(), own.y.values());
    EXPECT_EQ(f.dw.values(), own.dw.values());
  }
}

// y and, where nothing is added to it, dw.
TEST(Session, ResultsMayBeItsOwn) {
  for (bool poison : {false, true}) {
    Plan plan = toy_plan();
    plan.backward.back() = step("multiply", {"v", "v"}, {"dw"});
    ToyBackend backend;
    Session session(plan, backend, {{"M", 2}},
                    {.timing = false, .poison = poison, .own_results = true});
    OwnedTensor x(DType::f32, 2, 3, 4), w(DType::f32, 2, 3), dy(DType::f32, 2, 3);
    x.randomise(1), w.randomise(2), dy.randomise(3);
    for (const char* own : {"y", "dw", "s", "u"}) EXPECT_TRUE(session.owns(own)) << own;
    for (const char* given : {"x", "w", "dy"}) EXPECT_FALSE(session.owns(given)) << given;
    EXPECT_THAT(message([&] { session.bind("y", x.view()); }),
                testing::HasSubstr("'y' is the session's own (SessionOptions::own_results)"));
    session.bind("x", x.view()), session.bind("w", w.view()), session.bind("dy", dy.view());
    session.forward();
    const std::vector<double> y = read_values(session.view("y"));
    for (int times = 1; times <= 2; ++times) {
      session.backward();
      const std::vector<double> dw = read_values(session.view("dw"));
      for (size_t i = 0; i < y.size(); ++i) {
        const double xi = x.values()[i], wi = w.values()[i], v = dy.values()[i] * xi * wi * xi;
        EXPECT_NEAR(y[i], xi * xi * wi * wi * wi, 1e-5);
        EXPECT_NEAR(dw[i], v * v, 1e-4);
      }
    }
    EXPECT_EQ(read_values(session.view("y")), y);
  }
  ToyBackend backend;
  Plan forgets = toy_plan();
  forgets.backward.back() = step("store first", {"v", "v"}, {"dw"});
  Session poisoned(forgets, backend, {{"M", 2}},
                   {.timing = false, .poison = true, .own_results = true});
  OwnedTensor one(DType::f32, 2, 3);
  one.set(1.0);
  for (const char* given : {"x", "w", "dy"}) poisoned.bind(given, one.view());
  poisoned.forward();
  poisoned.backward();
  const std::vector<double> dw = read_values(poisoned.view("dw"));
  EXPECT_EQ(dw[0], 1);
  for (size_t i = 1; i < 6; ++i) EXPECT_TRUE(std::isnan(dw[i]));
  EXPECT_EQ(read_values(poisoned.view("y")), std::vector<double>(6, 1.0));

  const Session adds(toy_plan(), backend, {{"M", 2}}, {.own_results = true});
  EXPECT_FALSE(adds.owns("dw"));
  EXPECT_TRUE(adds.owns("y"));
}

TEST(Session, WrongBindingsAreRefusedWithWhatIsExpected) {
  using testing::HasSubstr;
  Fixture f;
  OwnedTensor wide(DType::f32, 2, 4), half(DType::bf16, 2, 3);
  auto bind = [&](const char* name, TensorView view) {
    const std::string why = message([&] { f.session.bind(name, view); });
    EXPECT_EQ(message([&] { f.session.bind(f.session.slot(name), view); }), why);
    return why;
  };
  EXPECT_EQ(bind("x", f.x.view()), "accepted");
  EXPECT_THAT(bind("z", f.x.view()), HasSubstr("no tensor named 'z'"));
  EXPECT_THAT(bind("s", f.x.view()), HasSubstr("'s' is the plan's own"));
  EXPECT_THAT(bind("x", wide.view()),
              HasSubstr("tensor 'x' is f32 [2, 3], but f32 [2, 4] was given"));
  EXPECT_THAT(bind("x", half.view()),
              HasSubstr("tensor 'x' is f32 [2, 3], but bf16 [2, 3] was given"));
  TensorView narrow = f.x.view();
  narrow.row_stride = 2;
  EXPECT_THAT(bind("x", narrow), HasSubstr("2 elements apart"));
  EXPECT_THAT(bind("x", dense_view(nullptr, DType::f32, 2, 3)), HasSubstr("null"));
  TensorView odd = f.x.view();
  odd.data = static_cast<std::byte*>(odd.data) + 2;
  EXPECT_THAT(bind("x", odd), HasSubstr("starts 2 bytes behind a multiple of an element's 4"));
}

TEST(Session, ATensorBoundByItsSlotIsTheOneOfThatName) {
  Fixture f;
  f.bind();
  OwnedTensor other(DType::f32, 2, 3);
  f.session.forward();
  f.session.bind(f.session.slot("x"), other.view());
  EXPECT_EQ(f.session.view("x").data, other.view().data);
  EXPECT_EQ(f.session.view("w").data, f.w.view().data);
}

TEST(Session, WhatIsWrittenMustNotOverlapWhatElseThePhaseUses) {
  using testing::HasSubstr;
  Fixture f;
  f.bind();
  f.session.forward();
  f.session.bind("y", f.w.view());
  EXPECT_THAT(message([&] { f.session.forward(); }),
              HasSubstr("tensor 'y' is written, but its memory overlaps that of tensor 'w'"));
  // The same memory may be read under two names, and an output of the forward be given to the
  // backward as an input.
  f.session.bind("w", f.x.view());
  f.session.bind("y", f.dy.view());
  EXPECT_EQ(message([&] { f.session.forward(); }), "accepted");
  EXPECT_EQ(message([&] { f.session.backward(); }), "accepted");
  f.session.bind("dw", f.dy.view());
  EXPECT_THAT(message([&] { f.session.backward(); }), HasSubstr("tensor 'dw' is written"));
}

TEST(Session, SizesMustBePositive) {
  ToyBackend backend;
  EXPECT_THAT(message([&] { Session(toy_plan(), backend, {{"M", 0}}); }),
              testing::HasSubstr("tensor 'x': size M is 0 with M = 0; sizes must be positive"));
}

TEST(Session, RunsOnlyWithEverythingBoundAndInOrder) {
  using testing::HasSubstr;
  Fixture f;
  EXPECT_THAT(message([&] { f.session.forward(); }),
              HasSubstr("'w', 'x', 'y' are not bound; step 'multiply step' needs one of them"));
  f.session.bind("x", f.x.view()), f.session.bind("w", f.w.view()), f.session.bind("y", f.y.view());
  EXPECT_THAT(message([&] { f.session.backward(); }), HasSubstr("no forward to follow"));
  EXPECT_EQ(message([&] { f.session.forward(); }), "accepted");  // the backward's are not needed
  EXPECT_THAT(message([&] { f.session.backward(); }),
              HasSubstr("backward: 'dw', 'dy' are not bound"));
}

TEST(Session, ABackwardThatOverwritesWhatIsSavedNeedsANewForward) {
  Plan plan = toy_plan();
  plan.backward[0] = step("multiply", {"dy", "s"}, {"s"});
  plan.backward[1] = step("multiply", {"s", "x"}, {"v"});
  ToyBackend backend;
  Session session(plan, backend, {{"M", 2}});
  Fixture f;  // its tensors
  session.bind("x", f.x.view()), session.bind("w", f.w.view()), session.bind("y", f.y.view());
  session.bind("dy", f.dy.view()), session.bind("dw", f.dw.view());
  session.forward();
  EXPECT_EQ(message([&] { session.backward(); }), "accepted");
  EXPECT_THAT(message([&] { session.backward(); }),
              testing::HasSubstr("overwritten what it saved"));
  session.forward();
  EXPECT_EQ(message([&] { session.backward(); }), "accepted");
}

// t = [x0 | x1] is written by halves; the right half, times w, is y; the left half is squared.
TEST(Session, AViewIsAColumnRangeOfWhatItViews) {
  for (bool poison : {false, true}) {
    Plan plan;
    plan.tensors = {tensor("x", TensorRole::input),
                    tensor("w", TensorRole::parameter),
                    tensor("y", TensorRole::output),
                    tensor("z", TensorRole::output),
                    {TensorDecl{"t", Shape{Dim("M"), 6}}, TensorRole::temporary}};
    for (int half : {0, 1}) {
      PlanTensor view = tensor("t" + std::to_string(half), TensorRole::temporary);
      view.view_of = "t", view.column_offset = Dim(3 * half);
      plan.tensors.push_back(view);
    }
    plan.forward = {step("add", {"x", "x"}, {"t0"}), step("add", {"w", "w"}, {"t1"}),
                    step("multiply", {"t1", "w"}, {"y"}), step("multiply", {"t0", "t0"}, {"z"})};
    ToyBackend backend;
    Session session(plan, backend, {{"M", 4}}, {.timing = false, .poison = poison});
    OwnedTensor x(DType::f32, 4, 3), w(DType::f32, 4, 3), y(DType::f32, 4, 3), z(DType::f32, 4, 3);
    x.set(3.0), w.set(5.0);
    session.bind("x", x.view()), session.bind("w", w.view());
    session.bind("y", y.view()), session.bind("z", z.view());
    session.forward();
    EXPECT_EQ(y.values(), std::vector<double>(12, 50.0));
    EXPECT_EQ(z.values(), std::vector<double>(12, 36.0));
    EXPECT_EQ(session.arena_bytes(), 128);  // 4 x 6 floats, once
    EXPECT_EQ(session.view("t1").row_stride, 6);
    EXPECT_THAT(message([&] { session.bind("t1", x.view()); }),
                testing::HasSubstr("'t1' is the plan's own"));
  }
}

TEST(Session, AVectorMayBeReadAlongTheOtherDimension) {
  Plan plan;
  PlanTensor row{TensorDecl{"row", Shape{1, Dim("M")}}, TensorRole::input};
  row.view_of = "x", row.transposed = true;
  plan.tensors = {{TensorDecl{"x", Shape{Dim("M"), 1}}, TensorRole::input},
                  row,
                  {TensorDecl{"y", Shape{1, Dim("M")}}, TensorRole::output}};
  plan.forward = {step("multiply", {"row", "row"}, {"y"})};
  ToyBackend backend;
  Session session(plan, backend, {{"M", 5}});
  OwnedTensor x(DType::f32, 5, 1), apart(DType::f32, 5, 1, 1), y(DType::f32, 1, 5);
  x.set(std::vector<double>{1, 2, 3, 4, 5});
  session.bind("x", x.view()), session.bind("y", y.view());
  session.forward();
  EXPECT_EQ(y.values(), (std::vector<double>{1, 4, 9, 16, 25}));
  session.bind("x", apart.view());
  EXPECT_THAT(message([&] { session.forward(); }), testing::HasSubstr("'x' is also read as a row"));
}

TEST(Session, AViewMustLieInWhatItViews) {
  ToyBackend backend;
  auto refuse = [&](const std::string& of, int64_t offset, bool transposed) {
    Plan plan = toy_plan();
    PlanTensor view{TensorDecl{"part", Shape{Dim("M"), 2}}, TensorRole::input};
    view.view_of = of, view.column_offset = Dim(offset), view.transposed = transposed;
    plan.tensors.push_back(view);
    return message([&] { Session(plan, backend, {{"M", 2}}); });
  };
  EXPECT_EQ(refuse("x", 1, false), "accepted");
  EXPECT_THAT(
      refuse("x", 2, false),
      testing::HasSubstr("'part', f32 [2, 2] from column 2, is no view of 'x', f32 [2, 3]"));
  EXPECT_THAT(refuse("x", 0, true), testing::HasSubstr("is no view of 'x'"));
  EXPECT_THAT(refuse("later", 0, false), testing::HasSubstr("no tensor of the plan before it"));
}

TEST(Session, APlanThatContradictsItselfIsRefused) {
  using testing::HasSubstr;
  ToyBackend backend;
  auto refuse = [&](const Plan& plan) {
    return message([&] { Session(plan, backend, {{"M", 2}}); });
  };
  Plan plan = toy_plan();
  plan.forward[0] = step("multiply", {"x", "x"}, {"w"});
  plan.forward[1] = step("multiply", {"x", "x"}, {"s"});
  plan.forward.pop_back();
  EXPECT_THAT(refuse(plan), HasSubstr("writes 'w', which the caller gives"));

  plan = toy_plan();
  plan.tensors.push_back(plan.tensors[0]);
  EXPECT_THAT(refuse(plan), HasSubstr("two tensors named 'x'"));

  Program program;
  program.name = "copy";
  program.tensors = {TensorDecl{"x", Shape{Dim("M"), 3}}, TensorDecl{"s", Shape{Dim("M"), 3}}};
  const Shape shape{Dim("M"), 3};
  program.steps = {{steps::LoadTile{0}, shape}, {steps::StoreTile{1}, shape, {0}}};
  plan = toy_plan();
  plan.forward[0] = {"copy", StepRole::tile, program, {}};
  EXPECT_EQ(refuse(plan), "accepted");
  program.tensors[0].dtype = DType::bf16;
  plan.forward[0] = {"copy", StepRole::tile, program, {}};
  EXPECT_THAT(refuse(plan),
              HasSubstr("step 'copy' declares a tensor otherwise than the plan does"));
}

}  // namespace
}  // namespace coda
