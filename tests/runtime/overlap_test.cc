// SPDX-License-Identifier: Apache-2.0
// Overlap of strided matrices is exact: against every byte marked, for random small ones; and only
// a tensor that is written must not overlap another.
#include "runtime/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "coda/error.h"

namespace coda {
namespace {

std::set<const std::byte*> bytes_of(const TensorView& view) {
  std::set<const std::byte*> bytes;
  for (int64_t row = 0; row < view.rows; ++row) {
    for (int64_t i = 0; i < view.cols * size_of(view.dtype); ++i) {
      bytes.insert(static_cast<const std::byte*>(view.data) +
                   row * view.row_stride * size_of(view.dtype) + i);
    }
  }
  return bytes;
}

TEST(Overlap, IsThatOfTheBytes) {
  std::vector<std::byte> memory(4096);
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  int overlapping = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto any_view = [&] {
      const DType dtype = below(2) == 0 ? DType::bf16 : DType::f32;
      const int64_t cols = 1 + below(6);
      return TensorView{memory.data() + 2 * below(300), dtype, 1 + below(7), cols, cols + below(9)};
    };
    const TensorView a = any_view();
    const TensorView b = any_view();
    const std::set<const std::byte*> of_a = bytes_of(a);
    bool expected = false;
    for (const std::byte* byte : bytes_of(b)) expected = expected || of_a.contains(byte);
    overlapping += expected;
    ASSERT_EQ(overlap(a, b), expected)
        << i << ": " << a.rows << "x" << a.cols << " and " << b.rows << "x" << b.cols;
  }
  EXPECT_GT(overlapping, 2000);
  EXPECT_LT(overlapping, 18000);
}

TEST(Overlap, OfATensorThatIsWrittenIsAnError) {
  std::vector<float> memory(100);
  const TensorView all = dense_view(memory.data(), DType::f32, 10, 10);
  // Columns of one matrix lie between one another.
  const TensorView left{memory.data(), DType::f32, 10, 4, 10};
  const TensorView right{memory.data() + 4, DType::f32, 10, 6, 10};
  EXPECT_NO_THROW(check_overlaps({{"left", left, true}, {"right", right, true}}));
  EXPECT_NO_THROW(check_overlaps({{"all", all, false}, {"right", right, false}}));
  for (const bool is_right_written : {false, true}) {
    try {
      check_overlaps({{"left", left, false},
                      {"all", all, !is_right_written},
                      {"right", right, is_right_written}});
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("'all'"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("overlaps"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("Remedy"));
    }
  }
}

}  // namespace
}  // namespace coda
