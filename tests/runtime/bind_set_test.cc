// SPDX-License-Identifier: Apache-2.0
// Whole sets of tensors bound to a session at once: all that is wrong is said at once, and then
// nothing is bound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/error.h"
#include "coda/session.h"
#include "runtime/far_backend.h"

namespace coda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Plan scaled_sum() {
  return one_step_plan(parse_program(
      "program scaled_sum {\n store(y[M, 4], (tile(a[M, 4]) + tile(b[M, 4])) * per_row(s))\n}"));
}

TensorMap whole_set(Backend& backend) {
  TensorMap set;
  for (const char* name : {"a", "b", "y"}) set.emplace(name, Tensor(DType::f32, 3, 4, backend));
  set.emplace("s", Tensor(DType::f32, 3, 1, backend));
  set.at("a").fill(1);
  set.at("b").fill(2);
  set.at("s").fill(10);
  return set;
}

std::string refusal(Session& session, const TensorMap& set) {
  try {
    session.bind(set);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(BindSet, BindsAllAndKeepsThem) {
  for (const bool is_far : {false, true}) {
    ReferenceBackend here;
    FarBackend far;
    Backend& backend = is_far ? static_cast<Backend&>(far) : here;
    Session session(scaled_sum(), backend, {{"M", 3}});
    EXPECT_THAT(session.missing(), ElementsAre("a", "b", "s", "y"));
    session.bind(whole_set(backend));  // a temporary: the session keeps the memory
    EXPECT_THAT(session.missing(), IsEmpty());
    session.forward();
    EXPECT_THAT(session.tensor("y").floats(), Each(30));
    session.bind(TensorMap{});  // nothing is missing
    Session moved = std::move(session);
    moved.tensor("s").fill(1);
    moved.forward();
    EXPECT_THAT(moved.tensor("y").floats(), Each(3));
  }
}

TEST(BindSet, SaysAllThatIsWrongAtOnce) {
  ReferenceBackend backend;
  FarBackend far;
  Session session(scaled_sum(), backend, {{"M", 3}});
  TensorMap set = whole_set(backend);
  set.erase("b");
  set.at("s") = Tensor(DType::f32, 4, 1);
  set.emplace("q", Tensor(DType::f32, 1, 1));
  set.at("y") = Tensor(DType::f32, 3, 4, far);
  EXPECT_THAT(
      refusal(session, set),
      AllOf(HasSubstr("'b' is missing"), HasSubstr("'s' is f32 [3, 1], but f32 [4, 1] was given"),
            HasSubstr("no tensor named 'q'"), HasSubstr("'y' lies in the memory of a GPU"),
            Not(HasSubstr("'a'"))));
  EXPECT_EQ(session.missing().size(), 4);
}

TEST(BindSet, TakesWhatItKnowsOfALargerSet) {
  ReferenceBackend backend;
  Session session(scaled_sum(), backend, {{"M", 3}});
  TensorMap set = whole_set(backend);
  set.emplace("other", Tensor(DType::f32, 1, 1));
  session.bind_known(set);
  EXPECT_THAT(session.missing(), IsEmpty());
}

TEST(BindSet, ARunNamesAllThatIsMissing) {
  ReferenceBackend backend;
  Session session(scaled_sum(), backend, {{"M", 3}});
  session.bind("a", Tensor(DType::f32, 3, 4));
  try {
    session.forward();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("'b', 's', 'y' are not bound"), HasSubstr("'scaled_sum'")));
  }
}

TEST(BindSet, AllocatesWhatIsMissing) {
  FarBackend backend;
  Session session(scaled_sum(), backend, {{"M", 3}});
  Tensor s(DType::f32, 3, 1, backend);
  s.fill(4);
  session.bind("s", s);
  const TensorMap made = session.allocate();
  EXPECT_EQ(made.size(), 3);
  session.tensor("a").fill(0.5F);
  session.forward();
  EXPECT_THAT(made.at("y").floats(), Each(2));
}

}  // namespace
}  // namespace coda
