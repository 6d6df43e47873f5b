// SPDX-License-Identifier: Apache-2.0
// Registering operations and calling them: what is refused, with which words; equal calls are one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "coda/builders.h"
#include "coda/error.h"
#include "ir/evaluate_graph.h"
#include "operations/causal_convolution.h"

namespace coda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

class Operations : public ::testing::Test {
 protected:
  void SetUp() override { tests::register_causal_convolution(); }

  Graph g;
  Value x = g.input("x", {"M", 8});
  Value w = g.parameter("w", {3, 8});
  const std::map<std::string, Dim> sequence{{"sequence", "T"}};
};

TEST_F(Operations, WhatACallGetsWrongIsSaidWithTheNearestNameAndTheCallersLine) {
  const auto call = [&](const std::string& name, const std::vector<Value>& operands,
                        const std::map<std::string, double>& attributes,
                        const std::map<std::string, Dim>& sizes) {
    return message_of([&] { opaque_call(name, operands, attributes, sizes); });
  };
  EXPECT_EQ(call("causal_convolution", {x, w}, {}, sequence), "accepted");
  EXPECT_THAT(call("causal_convolutoin", {x, w}, {}, sequence),
              HasSubstr("the nearest known name is \"causal_convolution\""));
  EXPECT_THAT(call("causal_convolution", {x, w}, {{"revresed", 1}}, sequence),
              AllOf(HasSubstr("causal_convolution(x: [M, 8], w: [3, 8]): attribute \"revresed\" is "
                              "not known; the nearest known name is \"reversed\""),
                    HasSubstr("registry_test.cc:")));
  EXPECT_THAT(call("causal_convolution", {x, w}, {}, {{"sequence", "T"}, {"seqence", 4}}),
              HasSubstr("size \"seqence\" is not known; the nearest known name is \"sequence\""));
  EXPECT_THAT(call("causal_convolution", {x, w}, {}, {}),
              HasSubstr("size \"sequence\" is missing"));
  EXPECT_THAT(call("attention", {x, x, x}, {{"heads", 2}}, sequence), HasSubstr("is missing"));
  EXPECT_THAT(call("causal_convolution", {x}, {}, sequence), HasSubstr("takes 2 operands, not 1"));
  EXPECT_THAT(call("causal_convolution", {x, g.input("v", {3, 9})}, {}, sequence),
              HasSubstr("x and w must have as many columns"));
  EXPECT_THAT(call("embedding", {x, x}, {{"rows", 3}}, {}),
              HasSubstr("attribute \"rows\" is not known; the nearest known name is "
                        "\"padding_row\""));
  Graph other;
  EXPECT_THAT(call("causal_convolution", {x, other.input("w", {3, 8})}, {}, sequence),
              HasSubstr("the operands are of different graphs"));
}

TEST_F(Operations, AttentionSaysWhatDoesNotFit) {
  const Value q = g.input("q", {"M", 64}), k = g.input("k", {"M", 32});
  const auto call = [&](const AttentionOptions& options) {
    return message_of([&] { attention(q, k, k, options); });
  };
  AttentionOptions good;
  good.heads = 4, good.kv_heads = 2, good.head_dim = 16, good.sequence = "T";
  EXPECT_EQ(call(good), "accepted");
  const auto with = [&](auto change) {
    AttentionOptions options = good;
    change(options);
    return call(options);
  };
  EXPECT_THAT(with([](auto& o) { o.kv_heads = 3; }),
              AllOf(HasSubstr("4 heads are no multiple of 3"), HasSubstr("registry_test.cc:")));
  EXPECT_THAT(with([](auto& o) { o.head_dim = 8; }), HasSubstr("q must be [M, 32], not [M, 64]"));
  EXPECT_THAT(with([](auto& o) { o.value_dim = 8; }), HasSubstr("v must be [M, 16], not [M, 32]"));
  EXPECT_THAT(with([](auto& o) { o.window = 8, o.causal = false; }), HasSubstr("causal"));
  EXPECT_THAT(with([](auto& o) { o.window = -1; }), HasSubstr("\"window\" must be a whole number"));
  EXPECT_THAT(with([](auto& o) { o.soft_cap = -1; }), HasSubstr("soft_cap must be positive"));
  EXPECT_EQ(with([&](auto& o) { o.documents = g.input("spans", {"M", 2}, DType::i32); }),
            "accepted");
  EXPECT_EQ(with([&](auto& o) { o.documents = g.input("of_keys", {"M", 4}, DType::i32); }),
            "accepted");
  EXPECT_THAT(with([&](auto& o) { o.documents = q; }),
              HasSubstr("documents must be [M, 2], not [M, 64]"));
  EXPECT_EQ(with([&](auto& o) { o.sinks = g.input("sinks", {1, 4}, DType::f32); }), "accepted");
  EXPECT_THAT(with([&](auto& o) { o.sinks = q; }), HasSubstr("sinks must be [1, 4], not [M, 64]"));
}

// A call has the operand if the attribute of its name says so.
TEST_F(Operations, OptionalOperandsAreCounted) {
  const Value q = g.input("q", {"M", 64}), spans = g.input("spans", {"M", 2}, DType::i32);
  const auto call = [&](const std::vector<Value>& operands, double documents,
                        double key_spans = 0) {
    return message_of([&] {
      opaque_call("attention", operands,
                  {{"heads", 4},
                   {"kv_heads", 4},
                   {"head_dim", 16},
                   {"scale", 1},
                   {"causal", 1},
                   {"documents", documents},
                   {"key_spans", key_spans}},
                  sequence);
    });
  };
  EXPECT_EQ(call({q, q, q, spans}, 1), "accepted");
  EXPECT_THAT(call({q, q, q, spans}, 0), HasSubstr("takes 3 operands, not 4"));
  EXPECT_THAT(call({q, q, q}, 1), HasSubstr("takes 4 operands, not 3"));
  EXPECT_THAT(call({q, q, q}, 0, 1), HasSubstr("but the call has no documents"));
  EXPECT_THAT(call({q, q, q, spans}, 1, 1), HasSubstr("documents must be [M, 4], not [M, 2]"));
  EXPECT_THAT(call({q, q, q, spans}, 2), HasSubstr("must be 1 if the operand is given, or 0"));
}

TEST_F(Operations, CallsThatMeanTheSameAreOneNode) {
  const auto call = [&](const std::map<std::string, double>& attributes) {
    return opaque_call("causal_convolution", {x, w}, attributes, sequence)[0];
  };
  EXPECT_EQ(call({}).id, call({{"reversed", 0}}).id);
  EXPECT_NE(call({}).id, call({{"reversed", 1}}).id);
}

TEST_F(Operations, AnIncompleteOrSecondEntryIsRefused) {
  const auto with = [](const std::function<void(Operation&)>& change) {
    Operation o = tests::causal_convolution();
    o.name = "another";
    change(o);
    return message_of([&] { register_operation(std::move(o)); });
  };
  EXPECT_THAT(with([](Operation& o) { o.name = "attention"; }),
              HasSubstr("there is an operation of that name"));
  EXPECT_THAT(with([](Operation& o) { o.name = "two words"; }), HasSubstr("identifier"));
  EXPECT_THAT(with([](Operation& o) { o.results = nullptr; }), HasSubstr("results"));
  EXPECT_THAT(with([](Operation& o) { o.evaluate = nullptr; }), HasSubstr("evaluate"));
  EXPECT_THAT(with([](Operation& o) {
                o.gpu_function = [](const OperationCall&) { return GpuFunction(); };
              }),
              HasSubstr("give one"));
  EXPECT_THAT(with([](Operation& o) { o.optional_operands = {"mask"}; }),
              HasSubstr("needs an attribute of its name with the default 0"));
  EXPECT_THAT(with([](Operation& o) {
                o.attributes["mask"] = 0, o.optional_operands = {"mask"}, o.can_add = true;
              }),
              HasSubstr("cannot add its result"));
}

// y[t] = w[0] x[t] + w[1] x[t - 1] + w[2] x[t - 2] inside each sequence of 4.
TEST_F(Operations, TheReferenceEvaluatesARegisteredOperation) {
  const Value y = opaque_call("causal_convolution", {x, w}, {}, {{"sequence", 4}})[0];
  std::vector<double> xs(8 * 8), ws(3 * 8);
  for (size_t i = 0; i < xs.size(); ++i) xs[i] = static_cast<double>(i);
  for (size_t i = 0; i < ws.size(); ++i) ws[i] = i < 8 ? 1 : i < 16 ? 10 : 100;
  const Matrix out = evaluate(g, {y.id}, {{"x", xs}, {"w", ws}}, {{"M", 8}})[0];
  EXPECT_EQ(out.at(0, 3), 3);
  EXPECT_EQ(out.at(1, 3), 11 + 10 * 3);
  EXPECT_EQ(out.at(3, 3), 27 + 10 * 19 + 100 * 11);
  EXPECT_EQ(out.at(4, 3), 35);
}

}  // namespace
}  // namespace coda
