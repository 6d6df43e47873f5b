// SPDX-License-Identifier: Apache-2.0
// Chains against their own operations run one at a time, bit for bit: random ones over all
// operations and operands, at widths around vectors and chunks, on each instruction set.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "coda/float16.h"
#include "cpu/chain_run.h"
#include "cpu/instruction_sets.h"
#include "cpu/partials.h"
#include "cpu/vector_ops.h"

namespace coda::cpu {
namespace {

constexpr int64_t kRows = 3;
constexpr int kPlanes = 24;  // room for what a random chain makes

// A tile with planes, a scalar, a vector along each side, and tensors that the test adds.
class Tile {
 public:
  Tile(int64_t cols, uint32_t seed) : random_(seed), stride_((cols + 63) / 64 * 64) {
    program_.steps = {{steps::Constant{0.75}},
                      {steps::LoadPerRow{0}, {kRows, 1}},
                      {steps::LoadPerColumn{1}, {1, cols}}};
    program_.tensors.resize(2);
    add_tensor(DType::f32, kRows, 1);
    add_tensor(DType::f32, 1, cols);
    vectors_ = std::make_unique<VectorProgram>(program_, DimValues{});
    for (int i = 0; i < 3; ++i) vectors_->add_step(i);
    ScratchPieces layout;
    vectors_->place(layout);
    scratch_.resize(layout.size() + 64);
    vectors_->run(tensors_, scratch(), 1);
    planes_.resize(kPlanes * kRows * stride_ + kVectorPad);
    for (float& x : planes_) x = number();
    slots_.resize(kPlanes * kWidestChunk);
    states_.resize(2 * stride_ + kVectorPad);
    cols_ = cols;
  }

  float number() { return std::normal_distribution<float>(0, 2)(random_); }
  std::mt19937& random() { return random_; }
  int64_t cols() const { return cols_; }

  int add_tensor(DType type, int64_t rows, int64_t cols) {
    memory_.emplace_back(rows * cols * size_of(type));
    const TensorView view = dense_view(memory_.back().data(), type, rows, cols);
    for (int64_t i = 0; i < rows * cols; ++i) {
      if (type == DType::f32) static_cast<float*>(view.data)[i] = number();
      if (type == DType::bf16) static_cast<uint16_t*>(view.data)[i] = bf16_from_float(number());
    }
    tensors_.push_back(view);
    return static_cast<int>(tensors_.size()) - 1;
  }
  int add_alias(int tensor) {
    tensors_.push_back(tensors_[tensor]);
    return static_cast<int>(tensors_.size()) - 1;
  }

  float* plane(int index) { return planes_.data() + index * kRows * stride_; }
  int64_t stride() const { return stride_; }
  const float* state() const { return states_.data(); }
  const float* floats(int tensor) const { return static_cast<float*>(tensors_[tensor].data); }

  void run(const std::vector<TileOp>& ops) {
    const Chain chain = compile_chain(ops, cols_, chain_machine());
    ASSERT_LE(chain.slots, kPlanes);
    std::fill(states_.begin(), states_.end(), 0.0f);
    TileContext tile;
    tile.tensors = tensors_;
    tile.vectors = vectors_.get();
    tile.scratch = scratch();
    tile.total_rows = tile.rows = tile.plane_rows = tile.strip_rows = kRows;
    tile.cols = cols_;
    tile.stride = stride_;
    tile.accumulators = planes_.data();
    tile.slots = slots_.data();
    tile.states = states_.data();
    ChainRun run(chain);
    run.bind(tile);
    run.run(0, 1);  // in two strips
    run.run(1, kRows - 1);
  }

 private:
  char* scratch() { return scratch_.data(); }

  std::mt19937 random_;
  int64_t stride_;
  int64_t cols_ = 0;
  Program program_;
  std::unique_ptr<VectorProgram> vectors_;
  std::vector<std::vector<char>> memory_;
  std::vector<TensorView> tensors_;
  std::vector<char> scratch_;
  std::vector<float> planes_;
  std::vector<float> slots_;
  std::vector<float> states_;
};

TileOp move(TileOpKind kind, int tensor, DType type, int64_t cols, Place value) {
  TileOp op;
  op.kind = kind;
  op.tensor = tensor;
  op.dtype = type;
  op.map = {0, cols};
  (kind == TileOpKind::load ? op.out[0] : op.in[0]) = value;
  return op;
}

// An operation without operands yet, and how many it has.
std::pair<TileOp, int> random_operation(std::mt19937& random) {
  TileOp op;
  const int which = static_cast<int>(random() % (kElementwiseCount + 7));
  if (which < kElementwiseCount) {
    op.op = static_cast<Elementwise>(which);
    return {op, info(op.op).arity};
  }
  if (which < kElementwiseCount + 2) {
    op.kind = TileOpKind::round;
    op.dtype = which == kElementwiseCount ? DType::bf16 : DType::f16;
    return {op, 1};
  }
  op.kind = TileOpKind::sum;
  op.arithmetic = static_cast<Arithmetic>(which - kElementwiseCount - 2);
  const bool has_product =
      op.arithmetic != Arithmetic::add && op.arithmetic != Arithmetic::subtract;
  return {op, has_product ? 3 : 2};
}

void expect_same(const float* a, const float* b, int64_t n, const std::string& what) {
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i])) << what << " " << i;
  }
}

// Planes 0 and 1 are a product's. The values that the chain makes are also made one by one, in the
// planes behind; every one that the chain stores must be the same.
void check_random_chain(int64_t cols, uint32_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(cols) + " columns");
  Tile tile(cols, seed);
  std::mt19937& random = tile.random();
  const int values = 3 + static_cast<int>(random() % 18);
  std::vector<TileOp> chain;
  const auto alone = [](int value) { return Place{PlaceKind::accumulator, 2 + value}; };
  const auto make = [&](TileOp op, int value) {
    for (Place& p : op.in) {
      if (p.kind == PlaceKind::value) p = alone(p.index);
    }
    const int result = tile.add_tensor(DType::f32, kRows, cols);
    tile.run({op, move(TileOpKind::store, result, DType::f32, cols, op.out[0])});
    for (int64_t i = 0; i < kRows; ++i) {
      std::copy_n(tile.floats(result) + i * cols, cols, tile.plane(2 + value) + i * tile.stride());
    }
  };
  std::vector<std::pair<int, int>> stored;  // tensor, value
  for (int value = 0; value < values; ++value) {
    const Place made{PlaceKind::value, value};
    TileOp op;
    if (random() % 5 == 0) {
      const DType type = random() % 2 == 0 ? DType::f32 : DType::bf16;
      op = move(TileOpKind::load, tile.add_tensor(type, kRows, cols), type, cols, made);
    } else {
      int arity = 0;
      std::tie(op, arity) = random_operation(random);
      op.out[0] = made;
      for (int k = 0; k < arity; ++k) {
        const int any = static_cast<int>(random() % (value + 5));
        op.in[k] = any < value        ? Place{PlaceKind::value, any}
                   : any < value + 2  ? Place{PlaceKind::accumulator, any - value}
                   : any == value + 2 ? Place{PlaceKind::scalar, 0}
                   : any == value + 3 ? Place{PlaceKind::row_vector, 1}
                                      : Place{PlaceKind::column_vector, 2};
      }
    }
    chain.push_back(op);
    make(op, value);
    if (random() % 2 == 0 || value + 1 == values) {
      stored.push_back({tile.add_tensor(DType::f32, kRows, cols), value});
      chain.push_back(move(TileOpKind::store, stored.back().first, DType::f32, cols, made));
    }
  }
  tile.run(chain);
  for (const auto& [tensor, value] : stored) {
    for (int64_t i = 0; i < kRows; ++i) {
      expect_same(tile.floats(tensor) + i * cols, tile.plane(2 + value) + i * tile.stride(), cols,
                  "value " + std::to_string(value) + " row " + std::to_string(i));
    }
  }
}

TEST(Chain, GivesTheBitsOfItsOperationsOneByOne) {
  for_each_instruction_set([] {
    uint32_t seed = 1;
    for (int64_t cols : {1, 7, 16, 31, 32, 64, 96, 100, 128, 129, 160, 200, 256, 300}) {
      for (int i = 0; i < 25; ++i) check_random_chain(cols, seed++);
    }
  });
}

// What one load reads another store may overwrite: a plan lets a program write a result where it
// reads an operand last. The order of a chain must not bring the store forward.
TEST(Chain, AStoreComesAfterTheLoadsBeforeIt) {
  for_each_instruction_set([] {
    for (int64_t cols : {5, 64, 128, 200}) {
      Tile tile(cols, 1);
      const int a = tile.add_tensor(DType::f32, kRows, cols);
      const int b = tile.add_tensor(DType::f32, kRows, cols);
      const int over_b = tile.add_alias(b);
      const int out = tile.add_tensor(DType::f32, kRows, cols);
      const std::vector<float> as(tile.floats(a), tile.floats(a) + kRows * cols);
      const std::vector<float> bs(tile.floats(b), tile.floats(b) + kRows * cols);
      const Place first{PlaceKind::value, 0};
      const Place second{PlaceKind::value, 1};
      tile.run({move(TileOpKind::load, a, DType::f32, cols, first),
                move(TileOpKind::load, b, DType::f32, cols, second),
                move(TileOpKind::store, over_b, DType::f32, cols, first),
                move(TileOpKind::store, out, DType::f32, cols, second)});
      expect_same(tile.floats(b), as.data(), kRows * cols, "overwritten");
      expect_same(tile.floats(out), bs.data(), kRows * cols, "read before");
    }
  });
}

// Sums along rows and columns have one order, whoever adds them.
TEST(Chain, SumsHaveTheBitsOfSumsOverAStrip) {
  for_each_instruction_set([] {
    const ChainMachine machine = chain_machine();
    for (int64_t cols : {1, 17, 63, 64, 65, 96, 128, 150, 192, 200, 256}) {
      SCOPED_TRACE(std::to_string(cols) + " columns");
      Tile tile(cols, static_cast<uint32_t>(cols));
      const int64_t spans = (cols + kPartialSpan - 1) / kPartialSpan;
      for (int planes : {1, 2}) {
        TileOp op;
        op.kind = TileOpKind::row_partial;
        op.tensor = tile.add_tensor(DType::f32, kRows, spans);
        for (int w = 0; w < planes; ++w) op.in[w] = {PlaceKind::accumulator, w};
        if (!fits_chain(op, cols, machine)) continue;
        tile.run({op});
        std::vector<float> want(kRows * spans);
        for (int64_t j = 0; j < cols; j += kPartialSpan) {
          row_partial(PartialKind::sum, tile.plane(0) + j,
                      planes == 1 ? nullptr : tile.plane(1) + j, tile.stride(), kRows,
                      std::min(kPartialSpan, cols - j), want.data() + j / kPartialSpan, spans, 0);
        }
        expect_same(tile.floats(op.tensor), want.data(), kRows * spans, "span");
      }
      TileOp op;
      op.kind = TileOpKind::column_partial;
      op.in[0] = {PlaceKind::accumulator, 0};
      op.state = 0;
      tile.run({op});
      std::vector<float> want(2 * tile.stride());
      column_partial(PartialKind::sum, tile.plane(0), tile.stride(), kRows, cols, 0, want.data(),
                     tile.stride());
      expect_same(tile.state(), want.data(), cols, "column");
    }
  });
}

// A value that only the next operation reads is not kept: a chain of ten has no slot.
TEST(Chain, KeepsNothingThatOnlyTheNextOperationReads) {
  std::vector<TileOp> ops;
  for (int i = 0; i < 10; ++i) {
    TileOp op;
    op.op = i % 2 == 0 ? Elementwise::mul : Elementwise::sigmoid;
    op.in[0] = i == 0 ? Place{PlaceKind::accumulator, 0} : Place{PlaceKind::value, i - 1};
    if (i % 2 == 0) op.in[1] = {PlaceKind::accumulator, 1};
    op.out[0] = {PlaceKind::value, i};
    ops.push_back(op);
  }
  ops.push_back(move(TileOpKind::store, 0, DType::bf16, 128, {PlaceKind::value, 9}));
  const Chain chain = compile_chain(ops, 128, chain_machine());
  EXPECT_EQ(chain.slots, 0);
  EXPECT_EQ(chain.whole.size(), 1 + 10 + 1 + 1);  // a fetch, the operations, the store, the end
}

}  // namespace
}  // namespace coda::cpu
