// SPDX-License-Identifier: Apache-2.0
// Embedding copies rows; its gradient equals a loop over rows in ascending order, bit for bit in
// fp32, for any number of threads, with or without something to add to, in place or not.
#include "cpu/opaque.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "coda/error.h"
#include "cpu/opaque.h"
#include "runtime/operation_call.h"
#include "runtime/owned_tensor.h"

namespace coda {
namespace {

// Half of the rows share three ids, as frequent tokens do.
OwnedTensor random_ids(int64_t rows, int64_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> values;
  for (int64_t i = 0; i < rows; ++i)
    values.push_back(static_cast<double>(
        random() % 2 == 0 ? random() % std::min<int64_t>(3, vocabulary) : random() % vocabulary));
  OwnedTensor ids(DType::i32, rows, 1, 2);
  ids.set(values);
  return ids;
}

void run(const std::string& function, const std::vector<OwnedTensor*>& tensors, size_t inputs,
         int threads, bool last_input_is_output = false) {
  OpaqueCall call;
  call.function = function;
  if (function == "embedding_backward") call.sizes = {{"rows", Dim(tensors.back()->view().rows)}};
  std::vector<TensorDecl> decls;
  std::vector<TensorView> views;
  for (size_t i = 0; i < tensors.size(); ++i) {
    decls.push_back(tensors[i]->decl("t" + std::to_string(i)));
    views.push_back(tensors[i]->view());
    (i < inputs ? call.inputs : call.outputs).push_back(decls.back().name);
  }
  if (last_input_is_output) {
    decls.insert(decls.end() - 1, decls.back());
    views.insert(views.end() - 1, views.back());
    call.inputs.push_back(decls.back().name);
  }
  if (threads == 0)
    prepare_reference_call(call, decls, {})->run(views);
  else
    cpu::prepare_opaque(call, decls, {}, threads)->run(views);
}

TEST(Embedding, CopiesTheRowsOfItsIdsRoundedToTheOutput) {
  for (DType from : {DType::f32, DType::bf16, DType::f16})
    for (DType to : {DType::f32, DType::bf16, DType::f16})
      for (auto [rows, vocabulary, cols] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                            {7, 5, 33},
                                            {300, 65, 576},
                                            {50, 1000, 1030}}) {
        OwnedTensor table = OwnedTensor(from, vocabulary, cols, 3).randomise(rows),
                    ids = random_ids(rows, vocabulary, 9);
        OwnedTensor out(to, rows, cols, 5), expected(to, rows, cols, 5);
        run("embedding", {&table, &ids, &out}, 2, 3);
        run("embedding", {&table, &ids, &expected}, 2, 0);
        EXPECT_EQ(out.bytes(), expected.bytes())
            << rows << " rows of " << vocabulary << " x " << cols;
      }
}

TEST(EmbeddingBackward, IsTheSumOfRowsInAscendingOrder) {
  for (auto [rows, vocabulary, cols] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                        {7, 5, 33},
                                        {900, 256, 40},
                                        {50, 1000, 1030}}) {
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (int mode = 0; mode < 3; ++mode) {  // nothing to add to; another tensor; in place
        OwnedTensor gradient = OwnedTensor(dtype, rows, cols, 3).randomise(rows + 1),
                    ids = random_ids(rows, vocabulary, 2);
        OwnedTensor base = OwnedTensor(DType::f32, vocabulary, cols).randomise(4);
        const std::vector<double> g = gradient.values(), id = ids.values();
        std::vector<double> sum =
            mode == 0 ? std::vector<double>(vocabulary * cols) : base.values();
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < cols; ++c) {
            double& s = sum[static_cast<int64_t>(id[r]) * cols + c];
            s = static_cast<float>(s) + static_cast<float>(g[r * cols + c]);
          }
        for (int threads : {1, 2, 5}) {
          OwnedTensor out(DType::f32, vocabulary, cols);
          if (mode == 2) out.set(base.values());
          if (mode == 1)
            run("embedding_backward", {&gradient, &ids, &base, &out}, 3, threads);
          else
            run("embedding_backward", {&gradient, &ids, &out}, 2, threads, mode == 2);
          EXPECT_EQ(out.values(), sum)
              << rows << " rows of " << vocabulary << " x " << cols << ", mode " << mode;
        }
      }
    }
  }
}

// Sums are fp32 whatever the storage: 4096 ones are 4096, where sums in bf16 would stop at 256 and
// those in f16 at 2048.
TEST(EmbeddingBackward, RoundsOnceToATableOf16Bits) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    OwnedTensor gradient(dtype, 4096, 8), ids(DType::i32, 4096, 1), table(dtype, 3, 8);
    gradient.set(1.0);
    ids.set(1.0);
    run("embedding_backward", {&gradient, &ids, &table}, 2, 2);
    EXPECT_EQ(table.values()[0], 0);
    EXPECT_EQ(table.values()[8], 4096);
    EXPECT_EQ(table.values()[16], 0);
  }
}

TEST(Embedding, AnIdOutsideTheTableIsAnErrorThatNamesRowAndId) {
  for (double bad : {-1.0, 5.0}) {
    OwnedTensor table = OwnedTensor(DType::f32, 5, 4).randomise(1), ids(DType::i32, 3, 1),
                out(DType::f32, 3, 4);
    ids.set(std::vector<double>{0, 4, bad});
    for (const char* function : {"embedding", "embedding_backward"}) {
      try {
        if (function == std::string("embedding")) {
          run(function, {&table, &ids, &out}, 2, 2);
        } else {
          run(function, {&out, &ids, &table}, 2, 2);
        }
        ADD_FAILURE() << function << " accepted " << bad;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(),
                    testing::HasSubstr("row 2 is " + std::to_string(static_cast<int>(bad))));
        EXPECT_THAT(error.what(), testing::HasSubstr("[0, 5)"));
      }
    }
  }
}

TEST(Embedding, RefusesShapesAndTypesThatDoNotFit) {
  OwnedTensor table(DType::f32, 5, 4), ids(DType::i32, 3, 1), out(DType::f32, 3, 4);
  OwnedTensor wide(DType::f32, 3, 5), float_ids(DType::f32, 3, 1), doubles(DType::f64, 3, 4);
  EXPECT_THROW(run("embedding", {&table, &ids, &wide}, 2, 1), Error);
  EXPECT_THROW(run("embedding", {&table, &float_ids, &out}, 2, 1), Error);
  EXPECT_THROW(run("embedding", {&table, &ids, &doubles}, 2, 1), Error);
  EXPECT_THROW(run("embedding_backward", {&wide, &ids, &table}, 2, 1), Error);
}

}  // namespace
}  // namespace coda
