// SPDX-License-Identifier: Apache-2.0
// The embedding's kernels, compiled for the CPU: rows are looked up as they are, and each row of
// the gradient is the sum of what its tokens received, bit by bit where that is exact.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "gpu/host_run.h"
#include "gpu/launch/operation_launches.h"

namespace coda::gpu {
namespace {

struct Sizes {
  int64_t table_rows;
  int64_t columns;
  int64_t tokens;
  int64_t used_rows;  // tokens name these, the first of the table
  int64_t gap;        // elements between rows
};

class Embedding : public ::testing::Test {
 protected:
  void SetUp() override {
    RecordProperty("seed", 3);
    random_.seed(3);
  }

  static TensorDecl decl(const std::string& name, int64_t rows, int64_t cols, DType type) {
    return {name, {rows, cols}, type, TensorKind::dense, 1};
  }
  std::vector<double> values(int64_t count) {
    std::uniform_int_distribution<int> small(-64, 64);
    std::vector<double> result;
    for (int64_t i = 0; i < count; ++i) result.push_back(small(random_) / 16.0);
    return result;
  }
  std::vector<double> ids(const Sizes& s) {
    std::uniform_int_distribution<int64_t> row(0, s.used_rows - 1);
    std::vector<double> result;
    for (int64_t i = 0; i < s.tokens; ++i) result.push_back(static_cast<double>(row(random_)));
    return result;
  }

  // Fills the tensors, runs the call, and returns what its output holds. `groups`: among how many
  // blocks for the same columns the gradient's rows are dealt out; 0: as many as on a GPU.
  static std::vector<double> run(const OpaqueCall& call, const std::vector<TensorDecl>& decls,
                                 const std::vector<std::vector<double>>& inputs, int64_t gap,
                                 bool in_place = false, uint32_t groups = 0) {
    std::vector<HostTensor> tensors;
    LowerOptions options;
    std::vector<void*> addresses;
    for (const TensorDecl& d : decls) {
      tensors.emplace_back(d, DimValues{}, HostRows{gap});
      options.row_strides.push_back(tensors.back().stride());
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (i < inputs.size()) tensors[i].fill(inputs[i]);
      addresses.push_back(tensors[i].data());
    }
    if (in_place) addresses.back() = addresses[addresses.size() - 2];
    for (KernelLaunch launch : lower_call(call, decls, {}, options)) {
      if (groups != 0) {
        launch.numbers[3] = groups;
        launch.grid = groups * launch.numbers[4];
      }
      HostKernel(launch).run(addresses, options.row_strides);
    }
    for (HostTensor& tensor : tensors) tensor.check_guards();
    return tensors[tensors.size() - (in_place ? 2 : 1)].values();
  }

  std::vector<double> backward(const Sizes& s, DType stored, const std::vector<double>& dx,
                               const std::vector<double>& tokens, const std::vector<double>* added,
                               bool in_place = false, uint32_t groups = 0) {
    std::vector<TensorDecl> decls = {decl("dx", s.tokens, s.columns, DType::bf16),
                                     decl("ids", s.tokens, 1, DType::i32)};
    OpaqueCall call{"embedding_backward", {}, {{"rows", s.table_rows}}, {"dx", "ids"}, {"table"}};
    std::vector<std::vector<double>> inputs = {dx, tokens};
    if (added != nullptr) {
      decls.push_back(decl("before", s.table_rows, s.columns, stored));
      call.inputs.push_back("before");
      inputs.push_back(*added);
    }
    decls.push_back(decl("table", s.table_rows, s.columns, stored));
    return run(call, decls, inputs, s.gap, in_place, groups);
  }
  // In fp32, token by token; what is stored is exact where the numbers are few and small.
  static std::vector<double> expected(const Sizes& s, const std::vector<double>& dx,
                                      const std::vector<double>& tokens,
                                      const std::vector<double>* added) {
    std::vector<double> sums(s.table_rows * s.columns);
    if (added != nullptr) sums = *added;
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t j = 0; j < s.columns; ++j) {
        sums[static_cast<int64_t>(tokens[t]) * s.columns + j] += dx[t * s.columns + j];
      }
    }
    return sums;
  }

  std::mt19937_64 random_;
};

TEST_F(Embedding, LooksUpRowsAsTheyAre) {
  for (const Sizes& s : {Sizes{37, 72, 50, 37, 0}, {37, 72, 50, 37, 8}, {5, 70, 9, 5, 3}}) {
    const std::vector<double> table = values(s.table_rows * s.columns);
    std::vector<double> tokens = ids(s);
    tokens[4] = static_cast<double>(s.table_rows);  // outside: NaN
    const std::vector<double> found =
        run({"embedding", {}, {}, {"table", "ids"}, {"out"}},
            {decl("table", s.table_rows, s.columns, DType::bf16),
             decl("ids", s.tokens, 1, DType::i32), decl("out", s.tokens, s.columns, DType::bf16)},
            {table, tokens}, s.gap);
    for (int64_t i = 0; i < s.tokens * s.columns; ++i) {
      const int64_t token = i / s.columns;
      if (token == 4) {
        EXPECT_TRUE(std::isnan(found[i])) << i;
      } else {
        EXPECT_EQ(found[i], table[static_cast<int64_t>(tokens[token]) * s.columns + i % s.columns])
            << i;
      }
    }
  }
}

TEST_F(Embedding, EachRowOfTheGradientIsTheSumOfItsTokens) {
  // Behind the third: rows with many tokens, beside others and alone, in blocks side by side; the
  // last one has many rows in a block, with and without tokens.
  for (const Sizes& s : {Sizes{150, 72, 300, 150, 0},
                         {70, 70, 90, 20, 3},
                         {1, 8, 3, 1, 8},
                         {300, 520, 400, 9, 0},
                         {131, 1030, 201, 131, 3},
                         {3, 16, 777, 1, 8},
                         {9000, 8, 700, 9000, 0}}) {
    const std::vector<double> dx = values(s.tokens * s.columns);
    const std::vector<double> tokens = ids(s);
    EXPECT_EQ(backward(s, DType::f32, dx, tokens, nullptr), expected(s, dx, tokens, nullptr));
    const std::vector<double> added = values(s.table_rows * s.columns);
    for (const bool in_place : {false, true}) {
      EXPECT_EQ(backward(s, DType::f32, dx, tokens, &added, in_place),
                expected(s, dx, tokens, &added));
    }
  }
}

TEST_F(Embedding, AnIdThatNamesNoRowOfTheTableAddsNothing) {
  const Sizes s{10, 8, 40, 10, 0};
  const std::vector<double> dx = values(s.tokens * s.columns);
  std::vector<double> tokens = ids(s);
  std::vector<double> counted = dx;
  // A block's turn comes again beyond the table's last row: 10 and 11 would be its next ones.
  int64_t token = 0;
  for (const double outside : {-1.0, 10.0, 11.0, 19.0, 20.0, 2147483647.0, -2147483648.0}) {
    tokens[token] = outside;
    for (int64_t j = 0; j < s.columns; ++j) counted[token * s.columns + j] = 0;
    token += 3;
  }
  std::vector<double> named = tokens;
  for (double& id : named) id = id >= 0 && id < 10 ? id : 0;
  EXPECT_EQ(backward(s, DType::f32, dx, tokens, nullptr), expected(s, counted, named, nullptr));
}

// A block sums with as many teams as its share of the tokens, each a part of its list: one block
// has nearly all of them here, the others few or none.
TEST_F(Embedding, BlocksWithManyAndWithFewTokensSumThemAll) {
  for (const Sizes& s :
       {Sizes{900, 16, 1200, 900, 0}, {1601, 264, 700, 1601, 0}, {90, 20, 500, 90, 3}}) {
    const std::vector<double> dx = values(s.tokens * s.columns);
    std::vector<double> tokens = ids(s);
    constexpr uint32_t kGroups = 6;
    for (int64_t t = 0; t < s.tokens * 9 / 10; ++t)
      tokens[t] = t % 3 == 0 ? 5 : kGroups * (t % 7) + 5;
    EXPECT_EQ(backward(s, DType::f32, dx, tokens, nullptr, false, kGroups),
              expected(s, dx, tokens, nullptr));
    const std::vector<double> added = values(s.table_rows * s.columns);
    EXPECT_EQ(backward(s, DType::f32, dx, tokens, &added, false, kGroups),
              expected(s, dx, tokens, &added));
  }
}

// A block then makes fewer rows at a time, down to one, and that from a part of the tokens.
TEST_F(Embedding, MoreTokensThanABlockListsAreSummedInParts) {
  for (const Sizes& s : {Sizes{66, 8, 20000, 3, 0}, {66, 8, 20000, 40, 0}, {140, 8, 18999, 1, 3}}) {
    const std::vector<double> dx = values(s.tokens * s.columns);
    const std::vector<double> tokens = ids(s);
    constexpr uint32_t kGroups = 2;
    EXPECT_EQ(backward(s, DType::f32, dx, tokens, nullptr, false, kGroups),
              expected(s, dx, tokens, nullptr));
    const std::vector<double> added = values(s.table_rows * s.columns);
    EXPECT_EQ(backward(s, DType::f32, dx, tokens, &added, true, kGroups),
              expected(s, dx, tokens, &added));
  }
}

}  // namespace
}  // namespace coda::gpu
