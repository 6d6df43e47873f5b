// SPDX-License-Identifier: Apache-2.0
// Backends by name, and a session over each that a machine without a GPU has, with everything from
// coda/coda.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/coda.h"

namespace coda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(MakeBackend, ByName) {
  EXPECT_EQ(make_backend("cpu")->name(), "cpu");
  EXPECT_EQ(make_backend("reference")->name(), "reference");
  EXPECT_EQ(make_backend("best")->name(), why_no_gpu().empty() ? "gpu" : "cpu");
  if (why_no_gpu().empty()) {
    EXPECT_EQ(make_backend("gpu")->name(), "gpu");
  } else {
    EXPECT_THROW(make_backend("gpu"), Error);
  }
  EXPECT_GT(make_backend("cpu", {.threads = 1})->rates().flops_per_second, 0);
}

TEST(MakeBackend, SaysWhatThereIs) {
  try {
    make_backend("cuda");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"cpu\""), HasSubstr("\"gpu\""),
                                    HasSubstr("\"best\""), HasSubstr("\"reference\"")));
  }
}

TEST(MakeBackend, RunsAPlan) {
  Graph graph;
  const Value x = graph.input("x", {"M", 64});
  const Value w = graph.parameter("w", {32, 64});
  CompileRequest request;
  request.outputs = {{"y", maximum(linear(x, w), 0.0)}};
  for (const char* name : {"cpu", "reference"}) {
    const auto backend = make_backend(name);
    CompileOptions options;
    options.rates = backend->rates();
    options.sizes = {{"M", 3}};
    Session session(compile(graph, request, options).plan, *backend, options.sizes);
    session.allocate();
    session.tensor("x").fill(0.5F);
    session.tensor("w").fill(2);
    session.forward();
    EXPECT_THAT(session.tensor("y").floats(), testing::Each(64)) << name;
  }
}

}  // namespace
}  // namespace coda
