// SPDX-License-Identifier: Apache-2.0
// The reference's gradients are those of its functions: central differences in float64 along random
// directions agree.
#include "runtime/operation_call.h"

#include <gtest/gtest.h>

#include "runtime/owned_tensor.h"

namespace coda {
namespace {

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void run(OpaqueCall call, size_t inputs, const std::vector<OwnedTensor*>& tensors) {
  call.inputs.resize(inputs);
  call.outputs.resize(tensors.size() - inputs);
  std::vector<TensorDecl> decls;
  std::vector<TensorView> views;
  for (OwnedTensor* tensor : tensors) {
    decls.push_back(tensor->decl("operand"));
    views.push_back(tensor->view());
  }
  prepare_reference_call(call, decls, {})->run(views);
}

TEST(ReferenceOpaque, AttentionGradientIsTheDerivative) {
  const int64_t rows = 14, heads = 4, kv_heads = 2, dim = 3;
  const struct {
    int causal;
    int64_t value_dim, window;
    double soft_cap;
  } cases[] = {{0, 3, 0, 0}, {1, 3, 0, 0},   {0, 5, 0, 0.8},
               {1, 2, 3, 0}, {1, 4, 1, 1.5}, {1, 3, 9, 2}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::to_string(c.window) + " of window, cap " + std::to_string(c.soft_cap));
    OpaqueCall call;
    call.attributes = {{"heads", heads},     {"kv_heads", kv_heads},  {"head_dim", dim},
                       {"scale", 0.7},       {"causal", c.causal},    {"value_dim", c.value_dim},
                       {"window", c.window}, {"soft_cap", c.soft_cap}};
    call.sizes = {{"sequence", Dim(7)}};
    auto tensor = [](int64_t cols, uint64_t seed) {
      return OwnedTensor(DType::f64, rows, cols).randomise(seed);
    };
    OwnedTensor q = tensor(heads * dim, 1), k = tensor(kv_heads * dim, 2),
                v = tensor(kv_heads * c.value_dim, 3), y = tensor(heads * c.value_dim, 4),
                lse = tensor(heads, 5), dy = tensor(heads * c.value_dim, 6),
                dq = tensor(heads * dim, 7), dk = tensor(kv_heads * dim, 8),
                dv = tensor(kv_heads * c.value_dim, 9);
    call.function = "attention";
    run(call, 3, {&q, &k, &v, &y, &lse});
    call.function = "attention_backward";
    run(call, 6, {&q, &k, &v, &y, &lse, &dy, &dq, &dk, &dv});
    call.function = "attention";
    OwnedTensor* inputs[] = {&q, &k, &v};
    OwnedTensor* gradients[] = {&dq, &dk, &dv};
    for (int i = 0; i < 3; ++i) {
      const std::vector<double> at = inputs[i]->values();
      const std::vector<double> direction = tensor(inputs[i]->view().cols, 20 + i).values();
      double loss[2];
      const double step = 1e-5;
      for (int side = 0; side < 2; ++side) {
        std::vector<double> moved = at;
        for (size_t j = 0; j < at.size(); ++j)
          moved[j] += (side == 0 ? step : -step) * direction[j];
        inputs[i]->set(moved);
        run(call, 3, {&q, &k, &v, &y, &lse});
        loss[side] = dot(y.values(), dy.values());
      }
      inputs[i]->set(at);
      const double difference = (loss[0] - loss[1]) / (2 * step);
      EXPECT_NEAR(dot(gradients[i]->values(), direction), difference,
                  1e-7 * std::abs(difference) + 1e-8)
          << "operand " << i;
    }
  }
}

TEST(ReferenceOpaque, EmbeddingGradientIsTheAdjoint) {
  OpaqueCall call;
  OwnedTensor table = OwnedTensor(DType::f64, 5, 3).randomise(1), out(DType::f64, 8, 3),
              ids(DType::i32, 8, 1);
  ids.set(std::vector<double>{0, 4, 4, 2, 0, 0, 1, 4});
  OwnedTensor gradient = OwnedTensor(DType::f64, 8, 3).randomise(2), dtable(DType::f64, 5, 3);
  call.function = "embedding";
  run(call, 2, {&table, &ids, &out});
  call.function = "embedding_backward";
  call.sizes = {{"rows", Dim(5)}};
  run(call, 2, {&gradient, &ids, &dtable});
  EXPECT_NEAR(dot(out.values(), gradient.values()), dot(table.values(), dtable.values()), 1e-12);
}

}  // namespace
}  // namespace coda
