// SPDX-License-Identifier: Apache-2.0
// Builds the operations in the order of cuDNN's documentation, which its engines recognise.
#include "gpu/cudnn/attention_graph.h"

#include <limits>

#include "operations/attention.h"

namespace coda::gpu::cudnn {
namespace {

constexpr int64_t kLargestHead = 256;  // the limit of the backward on sm_90
constexpr int64_t kHeadMultiple = 8;

DataType data_type(DType dtype) { return dtype == DType::bf16 ? DataType::bf16 : DataType::f16; }

Sizes packed(const Sizes& sizes) {
  return {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
}

GraphTensor dense(const Sizes& sizes, DataType type = DataType::f32, Place place = Place::engine) {
  return {.type = type, .sizes = sizes, .strides = packed(sizes), .place = place};
}

// The same values with rows and columns exchanged.
GraphTensor transposed(GraphTensor tensor) {
  std::swap(tensor.sizes[2], tensor.sizes[3]);
  std::swap(tensor.strides[2], tensor.strides[3]);
  return tensor;
}

struct Builder {
  const AttentionProblem& p;
  OperationGraph graph{};

  Sizes scores() const { return {p.sequences, p.heads, p.tokens, p.tokens}; }
  Sizes rows() const { return {p.sequences, p.heads, p.tokens, 1}; }

  // [tokens, heads * columns] of each sequence, in memory.
  GraphTensor tokens_of(int which, int64_t heads, int64_t columns) const {
    const int64_t stride = p.token_strides[which];
    return {.type = data_type(p.dtype),
            .sizes = {p.sequences, heads, p.tokens, columns},
            .strides = {p.tokens * stride, columns, stride, 1},
            .place = Place::memory};
  }
  // One number per row of scores.
  GraphTensor statistics() const { return dense(rows(), DataType::f32, Place::memory); }

  int score(Pointwise mode, std::vector<int> inputs) {
    return graph.pointwise(mode, std::move(inputs), dense(scores()));
  }

  // Sets scores of tokens that are not visible to -inf: later tokens, or tokens at least `window`
  // earlier. Each mask has its own indices, as cuDNN requires.
  enum class Mask : uint8_t { after, before };
  int masked(int scores_in, Mask which) {
    const auto index = [&](int64_t axis) {
      return graph.pointwise(Pointwise::index, {scores_in}, dense(scores(), DataType::i32),
                             DataType::f32, axis);
    };
    const int row = index(2);
    const int column = index(3);
    const GraphTensor mask = dense(scores(), DataType::boolean);
    int holds = -1;
    if (which == Mask::after) {
      holds = graph.pointwise(Pointwise::greater_equal, {row, column}, mask, DataType::boolean);
    } else {
      const int window = graph.number(static_cast<float>(p.window));
      const int end = score(Pointwise::add, {column, window});
      holds = graph.pointwise(Pointwise::greater, {end, row}, mask, DataType::boolean);
    }
    const int never = graph.number(-std::numeric_limits<float>::infinity());
    return score(Pointwise::select, {scores_in, never, holds});
  }

  int masked(int scores_in) {
    if (!p.causal) return scores_in;
    const int result = masked(scores_in, Mask::after);
    return p.window == 0 ? result : masked(result, Mask::before);
  }

  // The gradient of a key-value head is the sum over the query heads that read it.
  void product_of_heads(int left, int right, int output, int64_t columns) {
    if (p.heads == p.kv_heads) return graph.matmul(left, right, output);
    const int each =
        graph.add(dense({p.sequences, p.heads, p.tokens, columns}, data_type(p.dtype)));
    graph.matmul(left, right, each);
    graph.reduce(Reduction::add, each, output);
  }

  // As an operand of a matrix product: 16 bits, transposed.
  int transposed_operand(int scores_in) {
    const int result = graph.add(transposed(dense(scores(), data_type(p.dtype))));
    graph.reshape(scores_in, result);
    return result;
  }
};

AttentionGraph forward(const AttentionProblem& p) {
  Builder b{p};
  AttentionGraph result;
  OperationGraph& g = b.graph;
  result.q = g.add(b.tokens_of(0, p.heads, p.head_dim));
  result.k = g.add(transposed(b.tokens_of(1, p.kv_heads, p.head_dim)));
  const int products = g.add(dense(b.scores()));
  g.matmul(result.q, result.k, products);
  const int scores = b.masked(b.score(Pointwise::multiply, {products, g.number(p.scale)}));

  const int largest = g.add(dense(b.rows()));
  g.reduce(Reduction::max, scores, largest);
  const int powers = b.score(Pointwise::exp, {b.score(Pointwise::subtract, {scores, largest})});
  const int sum = g.add(dense(b.rows()));
  g.reduce(Reduction::add, powers, sum);
  result.statistics = g.add(b.statistics());
  g.pointwise_into(result.statistics, Pointwise::add,
                   {largest, g.pointwise(Pointwise::log, {sum}, dense(b.rows()))});
  const int shares =
      g.pointwise(Pointwise::divide, {powers, sum}, dense(b.scores(), data_type(p.dtype)));
  result.v = g.add(b.tokens_of(2, p.kv_heads, p.value_dim));
  result.y = g.add(b.tokens_of(3, p.heads, p.value_dim));
  g.matmul(shares, result.v, result.y);
  result.graph = std::move(g);
  return result;
}

AttentionGraph backward(const AttentionProblem& p) {
  Builder b{p};
  AttentionGraph result;
  OperationGraph& g = b.graph;
  result.q = g.add(b.tokens_of(0, p.heads, p.head_dim));
  result.k = g.add(transposed(b.tokens_of(1, p.kv_heads, p.head_dim)));
  result.v = g.add(transposed(b.tokens_of(2, p.kv_heads, p.value_dim)));
  result.y = g.add(b.tokens_of(3, p.heads, p.value_dim));
  result.dy = g.add(b.tokens_of(4, p.heads, p.value_dim));
  result.statistics = g.add(b.statistics());
  const int scale = g.number(p.scale);

  // The sum of dy * y for each row.
  const Sizes values{p.sequences, p.heads, p.tokens, p.value_dim};
  const int weighted = g.pointwise(Pointwise::multiply, {result.dy, result.y}, dense(values));
  const int sums = g.add(dense(b.rows()));
  g.reduce(Reduction::add, weighted, sums);
  result.row_sums = g.add(b.statistics());
  g.pointwise_into(result.row_sums, Pointwise::multiply, {sums, g.number(1)});

  // Recomputes the softmax, then dv from it.
  const int products = g.add(dense(b.scores()));
  g.matmul(result.q, result.k, products);
  const int scores = b.score(Pointwise::multiply, {products, scale});
  const int below = b.masked(b.score(Pointwise::subtract, {scores, result.statistics}));
  const int shares = b.score(Pointwise::exp, {below});
  result.dv = g.add(b.tokens_of(7, p.kv_heads, p.value_dim));
  b.product_of_heads(b.transposed_operand(shares), result.dy, result.dv, p.value_dim);

  // The gradient of the scores, then dk and dq from it.
  const int share_gradients = g.add(dense(b.scores()));
  g.matmul(result.dy, result.v, share_gradients);
  const int centred = b.score(Pointwise::subtract, {share_gradients, result.row_sums});
  const int unscaled = b.score(Pointwise::multiply, {centred, shares});
  const int gradients = b.score(Pointwise::multiply, {unscaled, scale});
  result.dk = g.add(b.tokens_of(6, p.kv_heads, p.head_dim));
  b.product_of_heads(b.transposed_operand(gradients), result.q, result.dk, p.head_dim);

  GraphTensor keys = b.tokens_of(1, p.kv_heads, p.head_dim);
  keys.place = Place::engine;
  const int untransposed = g.add(keys);
  g.reshape(result.k, untransposed);
  result.dq = g.add(b.tokens_of(5, p.heads, p.head_dim));
  if (p.deterministic) {
    g.matmul(gradients, untransposed, result.dq);
  } else {
    result.dq_sums =
        g.add(dense({p.sequences, p.heads, p.tokens, p.head_dim}, DataType::f32, Place::memory));
    g.matmul(gradients, untransposed, result.dq_sums);
    g.pointwise_into(result.dq, Pointwise::identity, {result.dq_sums});
  }
  result.graph = std::move(g);
  return result;
}

}  // namespace

std::string why_not_cudnn(const OperationCall& call) {
  const AttentionShape shape = attention_shape(call.settings, call.tensors[0].rows);
  const DType dtype = call.tensors[0].dtype;
  if (dtype != DType::bf16 && dtype != DType::f16)
    return "it computes in " + std::string(name_of(dtype));
  if (shape.soft_cap != 0) return "it has a soft-cap";
  if (shape.has_documents) return "it has packed documents";
  if (shape.has_sinks) return "it has sinks";
  for (const int64_t dim : {shape.head_dim, shape.value_dim}) {
    if (dim > kLargestHead || dim % kHeadMultiple != 0)
      return "a head of " + std::to_string(dim) + " is not a multiple of 8 up to 256";
  }
  return "";
}

AttentionGraph attention_graph(const AttentionProblem& problem) {
  return problem.backward ? backward(problem) : forward(problem);
}

}  // namespace coda::gpu::cudnn
