// SPDX-License-Identifier: Apache-2.0
// The graphs that cuDNN gets, evaluated here operation by operation in float64: they are
// attention's definition and its gradients, for heads that are grouped, windows, and tensors whose
// rows lie apart. No GPU and no cuDNN is needed.
#include "gpu/cudnn/attention_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/relative_error.h"
#include "gpu/cudnn/attention_part.h"
#include "operations/attention.h"

namespace coda::gpu::cudnn {
namespace {

using ::testing::HasSubstr;

// A tensor's elements at any place: [sequence, head, row, column].
struct Cells {
  GraphTensor tensor;
  std::vector<double>* memory = nullptr;  // of tensors in memory
  std::vector<double> own;

  // Heads that are shared, and sizes of 1, are read again.
  double& at(Sizes i) {
    for (int d = 0; d < 4; ++d) {
      if (d == 1) {
        i[d] /= std::max<int64_t>(1, of_heads / tensor.sizes[d]);
      } else if (tensor.sizes[d] == 1) {
        i[d] = 0;
      }
    }
    int64_t offset = 0;
    for (int d = 0; d < 4; ++d) offset += i[d] * tensor.strides[d];
    return (memory == nullptr ? own : *memory).at(static_cast<size_t>(offset));
  }
  int64_t of_heads = 1;  // as many as the operation has
};

void for_each(const Sizes& sizes, auto&& action) {
  for (int64_t a = 0; a < sizes[0]; ++a)
    for (int64_t b = 0; b < sizes[1]; ++b)
      for (int64_t c = 0; c < sizes[2]; ++c)
        for (int64_t d = 0; d < sizes[3]; ++d) action(Sizes{a, b, c, d});
}

double value_of(const GraphOperation& op, const Sizes& at, std::vector<Cells*>& in) {
  const auto x = [&](size_t i) { return in[i]->at(at); };
  switch (op.pointwise) {
    case Pointwise::add: return x(0) + x(1);
    case Pointwise::multiply: return x(0) * x(1);
    case Pointwise::divide: return x(0) / x(1);
    case Pointwise::subtract: return x(0) - x(1);
    case Pointwise::exp: return std::exp(x(0));
    case Pointwise::log: return std::log(x(0));
    case Pointwise::identity: return x(0);
    case Pointwise::greater: return x(0) > x(1) ? 1 : 0;
    case Pointwise::greater_equal: return x(0) >= x(1) ? 1 : 0;
    case Pointwise::index: return static_cast<double>(at[static_cast<size_t>(op.axis)]);
    case Pointwise::select: return x(2) != 0 ? x(0) : x(1);
  }
  return NAN;
}

// Runs the graph; `memory` of each tensor that is in memory.
void evaluate(const OperationGraph& graph, std::map<int, std::vector<double>>& memory) {
  std::vector<Cells> all;
  int64_t heads = 1;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const GraphTensor& t = graph.tensors[i];
    heads = std::max(heads, t.sizes[1]);
    Cells cells;
    cells.tensor = t;
    if (t.place == Place::memory) {
      cells.memory = &memory.at(static_cast<int>(i));
    } else if (t.place == Place::by_value) {
      cells.own = {static_cast<double>(t.value)};
    } else {
      int64_t end = 1;
      for (int d = 0; d < 4; ++d) end += (t.sizes[d] - 1) * t.strides[d];
      cells.own.resize(static_cast<size_t>(end));
    }
    all.push_back(std::move(cells));
  }
  std::vector<bool> is_made(all.size());
  for (size_t i = 0; i < all.size(); ++i)
    is_made[i] = graph.tensors[i].place == Place::by_value || !memory[static_cast<int>(i)].empty();
  for (const GraphOperation& op : graph.operations) {
    std::vector<Cells*> in;
    Cells& out = all[static_cast<size_t>(op.output)];
    const Sizes& sizes = out.tensor.sizes;
    for (const int i : op.inputs) {
      EXPECT_TRUE(is_made[static_cast<size_t>(i)]) << "an operation reads what is not there yet";
      in.push_back(&all[static_cast<size_t>(i)]);
      in.back()->of_heads = op.kind == OperationKind::reshape ? in.back()->tensor.sizes[1] : heads;
    }
    out.of_heads = sizes[1];
    is_made[static_cast<size_t>(op.output)] = true;
    switch (op.kind) {
      case OperationKind::pointwise:
        for_each(sizes, [&](const Sizes& at) { out.at(at) = value_of(op, at, in); });
        break;
      case OperationKind::matmul: {
        const int64_t depth = in[0]->tensor.sizes[3];
        ASSERT_EQ(depth, in[1]->tensor.sizes[2]);
        ASSERT_EQ(sizes[2], in[0]->tensor.sizes[2]);
        ASSERT_EQ(sizes[3], in[1]->tensor.sizes[3]);
        for_each(sizes, [&](const Sizes& at) {
          double sum = 0;
          for (int64_t k = 0; k < depth; ++k)
            sum += in[0]->at({at[0], at[1], at[2], k}) * in[1]->at({at[0], at[1], k, at[3]});
          out.at(at) = sum;
        });
        break;
      }
      case OperationKind::reduction: {
        // Along columns, or over the heads that share one.
        const Sizes from = in[0]->tensor.sizes;
        const bool is_max = op.reduction == Reduction::max;
        in[0]->of_heads = from[1];
        out.of_heads = from[1];
        for_each(from, [&](const Sizes& at) { out.at(at) = is_max ? -INFINITY : 0; });
        for_each(from, [&](const Sizes& at) {
          double& result = out.at(at);
          result = is_max ? std::max(result, in[0]->at(at)) : result + in[0]->at(at);
        });
        break;
      }
      case OperationKind::reshape:  // the same elements in the same places of memory
        if (in[0]->memory != nullptr) {
          out.memory = in[0]->memory;
        } else {
          out.own = in[0]->own;
        }
        break;
    }
  }
}

struct Case {
  int64_t sequences, tokens, heads, kv_heads, head_dim, value_dim, window;
  bool causal;
};

class AttentionGraphs : public ::testing::TestWithParam<std::tuple<Case, bool>> {};

TEST_P(AttentionGraphs, AreItsDefinition) {
  const auto& [c, deterministic] = GetParam();
  const int64_t rows = c.sequences * c.tokens;
  const int64_t q_cols = c.heads * c.head_dim, k_cols = c.kv_heads * c.head_dim,
                v_cols = c.kv_heads * c.value_dim, y_cols = c.heads * c.value_dim;
  OperationSettings settings;
  settings.attributes = {{"heads", double(c.heads)},
                         {"kv_heads", double(c.kv_heads)},
                         {"head_dim", c.head_dim},
                         {"value_dim", c.value_dim},
                         {"scale", 0.3F},
                         {"soft_cap", 0},
                         {"causal", c.causal ? 1 : 0},
                         {"window", c.window},
                         {"documents", 0},
                         {"key_spans", 0},
                         {"sinks", 0}};
  settings.sizes = {{"sequence", Dim(c.tokens)}};
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  const auto matrix = [&](int64_t cols) {
    Matrix m{rows, cols, std::vector<double>(static_cast<size_t>(rows * cols))};
    for (double& x : m.data) x = normal(random);
    return m;
  };
  const auto zeros = [&](int64_t cols) {
    return Matrix{rows, cols, std::vector<double>(static_cast<size_t>(rows * cols))};
  };
  const std::vector<Matrix> in{matrix(q_cols), matrix(k_cols), matrix(v_cols)};
  std::vector<Matrix> results{zeros(y_cols), zeros(c.heads)};
  evaluate_attention(settings, in, results);
  const Matrix dy = matrix(y_cols);
  std::vector<Matrix> gradients{zeros(q_cols), zeros(k_cols), zeros(v_cols)};
  evaluate_attention_backward(settings, {in[0], in[1], in[2], results[0], results[1], dy},
                              gradients);

  AttentionProblem problem{.deterministic = deterministic,
                           .sequences = c.sequences,
                           .tokens = c.tokens,
                           .heads = c.heads,
                           .kv_heads = c.kv_heads,
                           .head_dim = c.head_dim,
                           .value_dim = c.value_dim,
                           .window = c.window,
                           .causal = c.causal,
                           .scale = 0.3F};
  const std::vector<const Matrix*> tensors{&in[0], &in[1],        &in[2],        &results[0],
                                           &dy,    &gradients[0], &gradients[1], &gradients[2]};
  for (size_t i = 0; i < tensors.size(); ++i)  // rows lie apart
    problem.token_strides[i] = tensors[i]->cols + 3 * static_cast<int64_t>(i);
  const auto apart = [&](size_t which, bool is_given) {
    const int64_t stride = problem.token_strides[which];
    std::vector<double> values(static_cast<size_t>(rows * stride), NAN);
    for (int64_t r = 0; is_given && r < rows; ++r)
      for (int64_t col = 0; col < tensors[which]->cols; ++col)
        values[static_cast<size_t>(r * stride + col)] = tensors[which]->at(r, col);
    return values;
  };
  const auto together = [&](size_t which, const std::vector<double>& values) {
    std::vector<double> result;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t col = 0; col < tensors[which]->cols; ++col)
        result.push_back(values[static_cast<size_t>(r * problem.token_strides[which] + col)]);
    return result;
  };
  std::vector<double> by_head;  // the log-sum-exp as cuDNN has it
  for (int64_t s = 0; s < c.sequences; ++s)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t t = 0; t < c.tokens; ++t) by_head.push_back(results[1].at(s * c.tokens + t, h));
  constexpr double kBound = 1e-12;

  const AttentionGraph forward = attention_graph(problem);
  std::map<int, std::vector<double>> memory{
      {forward.q, apart(0, true)}, {forward.k, apart(1, true)}, {forward.v, apart(2, true)}};
  memory[forward.y] = apart(3, false);
  memory[forward.statistics] = std::vector<double>(by_head.size(), NAN);
  evaluate(forward.graph, memory);
  EXPECT_LT(relative_error(together(3, memory[forward.y]), results[0].data), kBound);
  EXPECT_LT(relative_error(memory[forward.statistics], by_head), kBound);

  problem.backward = true;
  const AttentionGraph backward = attention_graph(problem);
  EXPECT_EQ(backward.dq_sums < 0, deterministic);
  memory = {{backward.q, apart(0, true)},  {backward.k, apart(1, true)},
            {backward.v, apart(2, true)},  {backward.y, apart(3, true)},
            {backward.dy, apart(4, true)}, {backward.statistics, by_head}};
  memory[backward.dq] = apart(5, false);
  memory[backward.dk] = apart(6, false);
  memory[backward.dv] = apart(7, false);
  memory[backward.row_sums] = std::vector<double>(by_head.size(), NAN);
  if (!deterministic)
    memory[backward.dq_sums] = std::vector<double>(static_cast<size_t>(rows * q_cols), NAN);
  evaluate(backward.graph, memory);
  EXPECT_LT(relative_error(together(5, memory[backward.dq]), gradients[0].data), kBound);
  EXPECT_LT(relative_error(together(6, memory[backward.dk]), gradients[1].data), kBound);
  EXPECT_LT(relative_error(together(7, memory[backward.dv]), gradients[2].data), kBound);
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionGraphs,
                         ::testing::Combine(::testing::Values(Case{2, 9, 4, 2, 8, 8, 0, true},
                                                              Case{1, 7, 3, 3, 8, 16, 0, false},
                                                              Case{3, 12, 4, 1, 16, 8, 5, true},
                                                              Case{2, 1, 2, 2, 8, 8, 0, true}),
                                            ::testing::Bool()));

TEST(AttentionByCudnn, SaysWhatItDoesNotTake) {
  const auto refusal_of = [](DType dtype, double head_dim, double soft_cap, double documents = 0,
                             double sinks = 0) {
    OperationCall call;
    call.operation = "attention";
    call.settings.attributes = {{"heads", 2},     {"kv_heads", 1},         {"head_dim", head_dim},
                                {"scale", 1},     {"soft_cap", soft_cap},  {"causal", 1},
                                {"window", 0},    {"value_dim", head_dim}, {"documents", documents},
                                {"key_spans", 0}, {"sinks", sinks}};
    call.settings.sizes = {{"sequence", Dim(4)}};
    call.tensors = {{"q", dtype, 8, static_cast<int64_t>(2 * head_dim), 0}};
    return why_not_cudnn(call);
  };
  EXPECT_EQ(refusal_of(DType::bf16, 64, 0), "");
  EXPECT_EQ(refusal_of(DType::f16, 256, 0), "");
  EXPECT_THAT(refusal_of(DType::f32, 64, 0), HasSubstr("f32"));
  EXPECT_THAT(refusal_of(DType::bf16, 64, 30), HasSubstr("soft-cap"));
  EXPECT_THAT(refusal_of(DType::bf16, 64, 0, 1), HasSubstr("packed documents"));
  EXPECT_THAT(refusal_of(DType::bf16, 64, 0, 0, 1), HasSubstr("sinks"));
  EXPECT_THAT(refusal_of(DType::bf16, 68, 0), HasSubstr("head of 68"));
  EXPECT_THAT(refusal_of(DType::bf16, 264, 0), HasSubstr("head of 264"));
}

// Sequences of 2048 tokens with 32 heads: 256 MiB of gradients of the scores each.
TEST(AttentionPart, IsAsManyWholeSequencesAsFitElseHeadsOfOne) {
  AttentionShape shape;
  shape.sequences = 16;
  shape.tokens = 2048;
  shape.heads = 32;
  shape.kv_heads = 8;
  shape.head_dim = shape.value_dim = 64;
  const int64_t of_sequence = int64_t{32} * 2048 * 2048 * 2;
  const AttentionPart part = attention_part(shape, true, true);
  EXPECT_EQ(part.sequences, 8);
  EXPECT_EQ(part.kv_heads, 8);
  EXPECT_EQ(part.score_gradient_bytes, 8 * of_sequence);
  const AttentionPart heads =
      attention_part(shape, true, true, {.several_sequences = 1, .one_sequence = of_sequence / 3});
  EXPECT_EQ(heads.sequences, 1);
  EXPECT_EQ(heads.kv_heads, 2);
  EXPECT_EQ(heads.score_gradient_bytes, of_sequence / 4);
  for (const bool backward : {false, true}) {
    const AttentionPart whole = attention_part(shape, backward, !backward);
    EXPECT_EQ(whole.sequences, 16);
    EXPECT_EQ(whole.score_gradient_bytes, 0);
  }
  // Statistics of all rows and heads, and a part's sums of rows.
  const int64_t rows = int64_t{16} * 2048 * 32;
  EXPECT_EQ(attention_scratch_bytes(shape, false, true), 4 * rows);
  EXPECT_EQ(attention_scratch_bytes(shape, true, true), 4 * rows + 2 * rows + 8 * of_sequence);
  EXPECT_EQ(attention_scratch_bytes(shape, true, false), 4 * rows + 4 * rows + 4 * rows * 64);
}

}  // namespace
}  // namespace coda::gpu::cudnn
