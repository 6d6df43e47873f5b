// SPDX-License-Identifier: Apache-2.0
// Tensors: memory of the host or of a backend, filled and read by values of any type.
#include "coda/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "coda/error.h"
#include "runtime/far_backend.h"

namespace coda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(auto&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Tensor, IsMadeOfZerosAndCopiesAreTheSameMemory) {
  const Tensor a(DType::bf16, 2, 3);
  EXPECT_TRUE(a.is_on_host());
  EXPECT_THAT(a.floats(), Each(0));
  Tensor b = a;
  b.fill(2);
  EXPECT_THAT(a.floats(), Each(2));
}

TEST(Tensor, RoundsToNearestEven) {
  Tensor t(DType::bf16, 1, 3);
  t.set(std::vector<float>{1.00390625F, 1.01171875F, -3});  // ties: to 1 and to 1.015625
  EXPECT_THAT(t.floats(), ElementsAre(1, 1.015625F, -3));
  t = Tensor(DType::f16, 1, 2);
  t.set(std::vector<float>{0.1F, 70000});
  EXPECT_THAT(t.floats(), ElementsAre(0.0999755859375F, std::numeric_limits<float>::infinity()));
  t = Tensor(DType::i32, 1, 3);
  t.set(std::vector<float>{1.6F, -2, 0});
  EXPECT_THAT(t.ints(), ElementsAre(2, -2, 0));
}

TEST(Tensor, OfAViewLeavesGapsAlone) {
  std::vector<float> memory(8, -1);
  Tensor t(TensorView{memory.data(), DType::f32, 2, 3, 4});
  t.set(std::vector<float>{1, 2, 3, 4, 5, 6});
  EXPECT_THAT(memory, ElementsAre(1, 2, 3, -1, 4, 5, 6, -1));
  EXPECT_THAT(t.floats(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Tensor, InABackendsMemoryIsCopiedThereAndBack) {
  FarBackend backend;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32}) {
    Tensor t(dtype, 2, 2, backend);
    EXPECT_FALSE(t.is_on_host());
    EXPECT_THAT(t.floats(), Each(0)) << name_of(dtype);
    t.set(std::vector<float>{1, -2, 3, 4});
    EXPECT_THAT(t.floats(), ElementsAre(1, -2, 3, 4)) << name_of(dtype);
    Tensor host(dtype, 2, 2);
    t.copy_to(host.view());
    EXPECT_THAT(host.floats(), ElementsAre(1, -2, 3, 4)) << name_of(dtype);
  }
  Tensor ids(DType::i32, 3, 1, backend);
  ids.set(std::vector<int32_t>{7, 8, 9});
  EXPECT_THAT(ids.ints(), ElementsAre(7, 8, 9));
}

TEST(Tensor, SaysWhatDoesNotFit) {
  Tensor t(DType::f32, 2, 3);
  EXPECT_THAT(refusal([&] { t.set(std::vector<float>(5)); }),
              AllOf(HasSubstr("5 values"), HasSubstr("f32 [2, 3]"), HasSubstr("6")));
  EXPECT_THAT(refusal([&] { t.set(std::vector<int32_t>(6)); }), HasSubstr("must be i32"));
  EXPECT_THAT(refusal([&] { t.ints(); }), HasSubstr("must be i32"));
  EXPECT_THAT(refusal([&] { t.copy_to(Tensor(DType::f32, 3, 2).view()); }),
              AllOf(HasSubstr("f32 [2, 3]"), HasSubstr("f32 [3, 2]")));
  EXPECT_THAT(refusal([] { Tensor(DType::f32, 0, 2); }), HasSubstr("must be positive"));
}

}  // namespace
}  // namespace coda
