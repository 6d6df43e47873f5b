// SPDX-License-Identifier: Apache-2.0
// The mask of a row's k largest is that of a stable descending sort, on the CPU and in the float64
// definition: whatever the shape, with ties, infinities and NaN, and for any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "coda/builders.h"
#include "cpu/opaque.h"
#include "grad/differentiate.h"
#include "ir/evaluate_graph.h"
#include "runtime/operation_call.h"
#include "runtime/owned_tensor.h"

namespace coda {
namespace {

// NaN first, then descending; equal values by column.
std::vector<double> mask_by_sorting(const std::vector<double>& x, int64_t cols, int64_t k) {
  std::vector<double> mask(x.size(), 0);
  for (size_t start = 0; start < x.size(); start += static_cast<size_t>(cols)) {
    std::vector<size_t> order(static_cast<size_t>(cols));
    std::iota(order.begin(), order.end(), start);
    const auto key = [&](size_t i) {
      return std::pair(std::isnan(x[i]) ? 1 : 0, std::isnan(x[i]) ? 0 : x[i]);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t i, size_t j) { return key(i) > key(j); });
    for (int64_t i = 0; i < std::min(k, cols); ++i) mask[order[static_cast<size_t>(i)]] = 1;
  }
  return mask;
}

// Few different values, so that most rows have ties; some are not finite.
std::vector<double> values_with_ties(int64_t count, std::mt19937_64& random) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kSpecial[] = {-0.0, kInfinity, -kInfinity, std::nan("")};
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t draw = random() % 20;
    values.push_back(draw < 4 ? kSpecial[draw] : static_cast<double>(draw % 7) - 3);
  }
  return values;
}

// threads 0: the definition.
std::vector<double> top_k_run(OwnedTensor& x, OwnedTensor& mask, int64_t k, int threads) {
  OpaqueCall call;
  call.function = "top_k_mask";
  call.attributes = {{"k", static_cast<double>(k)}};
  call.inputs = {"x"}, call.outputs = {"mask"};
  const std::vector<TensorDecl> decls{x.decl("x"), mask.decl("mask")};
  const std::vector<TensorView> views{x.view(), mask.view()};
  if (threads == 0)
    prepare_reference_call(call, decls, {})->run(views);
  else
    cpu::prepare_opaque(call, decls, {}, threads)->run(views);
  return mask.values();
}

TEST(TopKMask, IsThatOfAStableDescendingSort) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 60; ++trial) {
    const auto rows = static_cast<int64_t>(1 + random() % 70);
    const auto cols = static_cast<int64_t>(1 + random() % 40);
    const auto k = static_cast<int64_t>(1 + random() % 9);
    const std::vector<double> x = values_with_ties(rows * cols, random);
    const std::vector<double> expected = mask_by_sorting(x, cols, k);
    for (DType type : {DType::f32, DType::bf16, DType::f16}) {
      OwnedTensor tensor(type, rows, cols, 3);
      tensor.set(x);
      for (int threads : {0, 1, 3}) {
        OwnedTensor mask(type, rows, cols, 2);
        EXPECT_EQ(top_k_run(tensor, mask, k, threads), expected)
            << rows << " x " << cols << ", k " << k << ", threads " << threads;
      }
    }
  }
}

// What a product with the mask chooses has the product's gradient; the mask has none.
TEST(TopKMask, GradientGoesToWhatIsChosen) {
  Graph g;
  const Value x = g.input("x", {2, 4}), weight = g.input("weight", {2, 4});
  const Value y = x * weight * top_k_mask(x, 2);
  const Value one = g.constant(1);
  const Value sum = row_sum(y);
  const std::vector<Value> gradients = differentiate(g, {{sum.id, one}}, {x.id, weight.id});
  const auto results =
      evaluate(g, {gradients[0].id, gradients[1].id},
               {{"x", {3, 1, 3, 3, 0, -1, -2, 5}}, {"weight", {1, 2, 3, 4, 5, 6, 7, 8}}}, {});
  EXPECT_EQ(results[0].data, (std::vector<double>{1, 0, 3, 0, 5, 0, 0, 8}));
  EXPECT_EQ(results[1].data, (std::vector<double>{3, 0, 3, 0, 0, 0, 0, 5}));
}

}  // namespace
}  // namespace coda
