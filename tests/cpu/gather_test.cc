// SPDX-License-Identifier: Apache-2.0
// Lists of marked rows, rows gathered by them and added up again: as loops over rows say, in the
// float64 definition and on the CPU, for any shape, type and number of threads. The gradients of
// gather and scatter_add are each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "coda/builders.h"
#include "coda/error.h"
#include "cpu/opaque.h"
#include "grad/differentiate.h"
#include "ir/evaluate_graph.h"
#include "runtime/operation_call.h"
#include "runtime/owned_tensor.h"

namespace coda {
namespace {

namespace gather_operations {

// Operands, then results; threads 0: the definition.
void run(OpaqueCall call, const std::vector<OwnedTensor*>& tensors, size_t operands, int threads) {
  std::vector<TensorDecl> decls;
  std::vector<TensorView> views;
  for (size_t i = 0; i < tensors.size(); ++i) {
    decls.push_back(tensors[i]->decl("t" + std::to_string(i)));
    views.push_back(tensors[i]->view());
    (i < operands ? call.inputs : call.outputs).push_back(decls.back().name);
  }
  if (threads == 0)
    prepare_reference_call(call, decls, {})->run(views);
  else
    cpu::prepare_opaque(call, decls, {}, threads)->run(views);
}

std::vector<double> random_mask(int64_t count, int share, std::mt19937_64& random) {
  std::vector<double> mask;
  for (int64_t i = 0; i < count; ++i)
    mask.push_back(static_cast<int>(random() % 100) < share ? 1 : 0);
  return mask;
}

// Numbers of so many rows, one in four of them -1.
std::vector<double> random_rows(int64_t count, int64_t rows, std::mt19937_64& random) {
  std::vector<double> list;
  for (int64_t i = 0; i < count; ++i) {
    const bool is_none = random() % 4 == 0;
    list.push_back(is_none ? -1 : static_cast<double>(random() % static_cast<uint64_t>(rows)));
  }
  return list;
}

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

}  // namespace gather_operations

// Columns without a mark, with all rows marked, and with more marks than the list has places.
TEST(MarkedRows, AreThoseOfEachColumnInAscendingOrder) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 60; ++trial) {
    const auto rows = static_cast<int64_t>(1 + random() % 90);
    const auto cols = static_cast<int64_t>(1 + random() % 7);
    const auto places = static_cast<int64_t>(1 + random() % 100);
    const int shares[] = {0, 30, 100};
    const std::vector<double> marks =
        gather_operations::random_mask(rows * cols, shares[trial % 3], random);
    for (DType type : gather_operations::kTypes) {
      OwnedTensor mask(type, rows, cols, 2);
      mask.set(marks);
      for (int threads : {0, 1, 3}) {
        std::vector<OwnedTensor> lists;
        std::vector<OwnedTensor*> tensors{&mask};
        for (int64_t c = 0; c < cols; ++c) lists.emplace_back(DType::f32, places, 1, c % 2);
        for (OwnedTensor& list : lists) tensors.push_back(&list);
        OpaqueCall call;
        call.function = "marked_rows";
        call.sizes = {{"rows", places}};
        gather_operations::run(call, tensors, 1, threads);
        for (int64_t c = 0; c < cols; ++c) {
          std::vector<double> expected;
          for (int64_t r = 0; r < rows && std::ssize(expected) < places; ++r)
            if (marks[r * cols + c] != 0) expected.push_back(static_cast<double>(r));
          expected.resize(places, -1);
          EXPECT_EQ(lists[c].values(), expected) << "column " << c << ", threads " << threads;
        }
      }
    }
  }
}

TEST(Gather, CopiesRowsAndGivesZerosForNoRow) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 40; ++trial) {
    const auto rows = static_cast<int64_t>(1 + random() % 50);
    const auto count = static_cast<int64_t>(1 + random() % 70);
    const auto cols = static_cast<int64_t>(trial % 5 == 0 ? 1 : 1 + random() % 600);
    OwnedTensor list(DType::f32, count, 1, 1);
    const std::vector<double> numbers = gather_operations::random_rows(count, rows, random);
    list.set(numbers);
    for (DType type : gather_operations::kTypes) {
      OwnedTensor x = OwnedTensor(type, rows, cols, 3).randomise(random());
      const std::vector<double> values = x.values();
      for (int threads : {0, 1, 3}) {
        OwnedTensor out(type, count, cols, 2);
        OpaqueCall call;
        call.function = "gather";
        gather_operations::run(call, {&x, &list, &out}, 2, threads);
        std::vector<double> expected(count * cols);
        for (int64_t i = 0; i < count; ++i)
          for (int64_t c = 0; c < cols; ++c)
            if (numbers[i] >= 0)
              expected[i * cols + c] = values[static_cast<int64_t>(numbers[i]) * cols + c];
        EXPECT_EQ(out.values(), expected) << count << " of " << rows << " x " << cols;
      }
    }
  }
}

// In fp32 bit for bit, whatever it is added to: the same for any number of threads.
TEST(ScatterAdd, SumsRowsInAscendingOrder) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 40; ++trial) {
    const auto rows = static_cast<int64_t>(1 + random() % 50);
    const auto count = static_cast<int64_t>(1 + random() % 70);
    const auto cols = static_cast<int64_t>(trial % 5 == 0 ? 1 : 1 + random() % 600);
    OwnedTensor list(DType::f32, count, 1);
    const std::vector<double> numbers = gather_operations::random_rows(count, rows, random);
    list.set(numbers);
    OwnedTensor x = OwnedTensor(DType::f32, count, cols, 3).randomise(random());
    OwnedTensor before = OwnedTensor(DType::f32, rows, cols, 1).randomise(random());
    const std::vector<double> values = x.values();
    for (const bool adds : {false, true}) {
      std::vector<double> expected = adds ? before.values() : std::vector<double>(rows * cols);
      for (int64_t i = 0; i < count; ++i) {
        if (numbers[i] < 0) continue;
        for (int64_t c = 0; c < cols; ++c) {
          double& sum = expected[static_cast<int64_t>(numbers[i]) * cols + c];
          sum = static_cast<float>(sum) + static_cast<float>(values[i * cols + c]);
        }
      }
      OpaqueCall call;
      call.function = "scatter_add";
      call.sizes = {{"rows", rows}};
      for (int threads : {1, 2, 5}) {
        OwnedTensor out(DType::f32, rows, cols, 2);
        std::vector<OwnedTensor*> tensors{&x, &list};
        if (adds) tensors.push_back(&before);
        tensors.push_back(&out);
        gather_operations::run(call, tensors, tensors.size() - 1, threads);
        EXPECT_EQ(out.values(), expected) << count << " to " << rows << " x " << cols;
      }
    }
  }
}

TEST(Gather, ANumberOfNoRowIsAnErrorThatNamesIt) {
  for (const double bad : {-2.0, 5.0}) {
    OwnedTensor x = OwnedTensor(DType::f32, 5, 4).randomise(1), list(DType::f32, 3, 1),
                out(DType::f32, 3, 4);
    list.set(std::vector<double>{0, -1, bad});
    OpaqueCall call;
    call.function = "gather";
    for (int threads : {0, 2}) {
      try {
        gather_operations::run(call, {&x, &list, &out}, 2, threads);
        ADD_FAILURE() << bad << " was taken";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(static_cast<int>(bad))));
      }
    }
  }
}

// <gather(x), y> and <x, scatter_add(y)> are the same number, and so are their gradients.
TEST(Gather, AndScatterAddAreAdjoint) {
  std::mt19937_64 random(4);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 20; ++trial) {
    const auto rows = static_cast<int64_t>(2 + random() % 9);
    const auto count = static_cast<int64_t>(2 + random() % 12);
    const auto cols = static_cast<int64_t>(2 + random() % 5);
    Graph g;
    const Value x = g.input("x", {"M", cols}), y = g.input("y", {count, cols});
    const Value list = g.input("list", {count, 1});
    const Value forth = col_sum(row_sum(gather(x, list) * y));
    const Value back = col_sum(row_sum(x * scatter_add(y, list, "M")));
    std::vector<int> roots{forth.id, back.id};
    for (const Value& sum : {forth, back})
      for (const Value& d : differentiate(g, {{sum.id, g.constant(1)}}, {x.id, y.id}))
        roots.push_back(d.id);
    std::map<std::string, std::vector<double>> inputs{
        {"list", gather_operations::random_rows(count, rows, random)}};
    for (int64_t i = 0; i < rows * cols; ++i) inputs["x"].push_back(normal(random));
    for (int64_t i = 0; i < count * cols; ++i) inputs["y"].push_back(normal(random));
    const std::vector<Matrix> r = evaluate(g, roots, inputs, {{"M", rows}});
    EXPECT_NEAR(r[0].data[0], r[1].data[0], 1e-12);
    EXPECT_EQ(r[2].data, r[4].data);
    EXPECT_EQ(r[3].data, r[5].data);
    for (int64_t i = 0; i < count; ++i) {  // d/dy is the gathered row
      const double row = inputs["list"][i];
      for (int64_t c = 0; c < cols; ++c)
        EXPECT_EQ(r[3].data[i * cols + c],
                  row < 0 ? 0 : inputs["x"][static_cast<int64_t>(row) * cols + c]);
    }
  }
}

}  // namespace
}  // namespace coda
