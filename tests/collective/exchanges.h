// SPDX-License-Identifier: Apache-2.0
// What every communicator does: exact sums in the order of the ranks, and a line where processes
// are out of step. Each process of a test calls these.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coda/communicator.h"

namespace coda {

inline std::vector<float> values_of(int rank, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> any;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = any(random);
  return values;
}

// Each element's sum in the order of the ranks, and one's own largest, bit for bit: an order that
// a library chose would differ somewhere.
inline void check_exchanges(Communicator& communicator) {
  const int world = communicator.world();
  const int rank = communicator.rank();
  // More than a piece of what travels at once, and a ragged one.
  for (const int64_t cols : {1, 37, 600001}) {
    const int64_t rows = 2 * world;
    std::vector<std::vector<float>> all;
    for (int r = 0; r < world; ++r) all.push_back(values_of(r, rows * cols));
    const int64_t block = 2 * cols;
    std::vector<float> summed = all[static_cast<size_t>(rank)];
    communicator.reduce_scatter(dense_view(summed.data(), DType::f32, rows, cols));
    for (int64_t i = block * rank; i < block * (rank + 1); ++i) {
      float sum = all[0][static_cast<size_t>(i)];
      for (int r = 1; r < world; ++r) sum += all[static_cast<size_t>(r)][static_cast<size_t>(i)];
      ASSERT_EQ(summed[static_cast<size_t>(i)], sum) << i;
    }

    std::vector<float> gathered = all[static_cast<size_t>(rank)];
    communicator.all_gather(dense_view(gathered.data(), DType::f32, rows, cols));
    for (int64_t i = 0; i < rows * cols; ++i) {
      const auto owner = static_cast<size_t>(i / block);
      ASSERT_EQ(gathered[static_cast<size_t>(i)], all[owner][static_cast<size_t>(i)]) << i;
    }

    std::vector<float> largest = all[static_cast<size_t>(rank)];
    communicator.maximum(dense_view(largest.data(), DType::f32, rows, cols));
    for (size_t i = 0; i < largest.size(); ++i) {
      float expected = all[0][i];
      for (const auto& values : all) expected = std::max(expected, values[i]);
      ASSERT_EQ(largest[i], expected) << i;
    }
  }
  std::vector<uint16_t> halves(static_cast<size_t>(world), static_cast<uint16_t>(rank));
  communicator.all_gather(dense_view(halves.data(), DType::bf16, world, 1));
  for (int r = 0; r < world; ++r) EXPECT_EQ(halves[static_cast<size_t>(r)], r);
}

// How rank 1 of two is out of step, and what is said.
constexpr std::pair<const char*, const char*> kOutOfStep[] = {
    {"function",
     "is out of step: its exchange 2 is all_gather of 8 f32, and rank 0's is "
     "reduce_scatter of 8 f32"},
    {"size",
     "is out of step: its exchange 2 is reduce_scatter of 400000 f32, and rank 0's is "
     "reduce_scatter of 8 f32"},
    {"leave", "has left after its exchange 1, and rank 0 goes on with reduce_scatter of 8 f32"}};

// Each way of it: another function, another size, one exchange more. None waits for ever.
inline void be_out_of_step(Communicator& communicator, const std::string& how) {
  std::vector<float> values(400'000);
  const auto matrix = [&](int64_t rows) { return dense_view(values.data(), DType::f32, rows, 2); };
  communicator.all_gather(matrix(2));
  if (communicator.rank() == 1) {
    if (how == "function") communicator.all_gather(matrix(4));
    if (how == "size") communicator.reduce_scatter(matrix(200'000));
    if (how == "leave") return;
  }
  communicator.reduce_scatter(matrix(4));
  communicator.all_gather(matrix(4));
}

}  // namespace coda
