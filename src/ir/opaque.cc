// SPDX-License-Identifier: Apache-2.0
// The table of opaque functions. Bodies are naive on purpose (a [T, T] matrix a head): they are the
// ground truth.
#include "ir/opaque.h"

#include <algorithm>
#include <cmath>

#include "coda/error.h"

namespace coda {
namespace {

struct Heads {
  int64_t heads, kv_heads, dim, sequence;
  double scale;
  bool causal;
};

Heads heads_of(const std::map<std::string, double>& attributes,
               const std::map<std::string, int64_t>& sizes) {
  auto number = [&](const char* name) { return attributes.at(name); };
  return {static_cast<int64_t>(number("heads")),
          static_cast<int64_t>(number("kv_heads")),
          static_cast<int64_t>(number("head_dim")),
          sizes.at("sequence"),
          number("scale"),
          number("causal") != 0};
}

// exp(scores - lse) of one head's row i against rows [first, last) of its sequence.
std::vector<double> scores_of(const Heads& h, const Matrix& q, const Matrix& k, int64_t row,
                              int64_t head, int64_t first, int64_t last) {
  const int64_t kv = head / (h.heads / h.kv_heads);
  std::vector<double> scores;
  for (int64_t j = first; j < last; ++j) {
    double dot = 0;
    for (int64_t d = 0; d < h.dim; ++d)
      dot += q.at(row, head * h.dim + d) * k.at(j, kv * h.dim + d);
    scores.push_back(dot * h.scale);
  }
  return scores;
}

std::vector<Matrix> attention(const std::map<std::string, double>& attributes,
                              const std::map<std::string, int64_t>& sizes,
                              const std::vector<Matrix>& in, const std::vector<Matrix>& shapes) {
  const Heads h = heads_of(attributes, sizes);
  std::vector<Matrix> out = shapes;
  for (int64_t row = 0; row < in[0].rows; ++row) {
    const int64_t first = row / h.sequence * h.sequence;
    const int64_t last = h.causal ? row + 1 : first + h.sequence;
    for (int64_t head = 0; head < h.heads; ++head) {
      const int64_t kv = head / (h.heads / h.kv_heads);
      const std::vector<double> scores = scores_of(h, in[0], in[1], row, head, first, last);
      const double top = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      for (double s : scores) total += std::exp(s - top);
      out[1].at(row, head) = top + std::log(total);
      for (int64_t d = 0; d < h.dim; ++d) {
        double sum = 0;
        for (int64_t j = first; j < last; ++j) {
          sum +=
              std::exp(scores[static_cast<size_t>(j - first)] - top) * in[2].at(j, kv * h.dim + d);
        }
        out[0].at(row, head * h.dim + d) = sum / total;
      }
    }
  }
  return out;
}

// q, k, v, y, lse, dy -> dq, dk, dv. p = exp(s - lse); dv = pᵀ dy; ds = p (dy·v - dy·y); dq = scale
// ds k; dk = scale dsᵀ q.
std::vector<Matrix> attention_backward(const std::map<std::string, double>& attributes,
                                       const std::map<std::string, int64_t>& sizes,
                                       const std::vector<Matrix>& in,
                                       const std::vector<Matrix>& shapes) {
  const Heads h = heads_of(attributes, sizes);
  std::vector<Matrix> out = shapes;
  for (Matrix& m : out) std::fill(m.data.begin(), m.data.end(), 0);
  for (int64_t row = 0; row < in[0].rows; ++row) {
    const int64_t first = row / h.sequence * h.sequence;
    const int64_t last = h.causal ? row + 1 : first + h.sequence;
    for (int64_t head = 0; head < h.heads; ++head) {
      const int64_t kv = head / (h.heads / h.kv_heads);
      const std::vector<double> scores = scores_of(h, in[0], in[1], row, head, first, last);
      double dy_y = 0;
      for (int64_t d = 0; d < h.dim; ++d)
        dy_y += in[5].at(row, head * h.dim + d) * in[3].at(row, head * h.dim + d);
      for (int64_t j = first; j < last; ++j) {
        const double p = std::exp(scores[static_cast<size_t>(j - first)] - in[4].at(row, head));
        double dy_v = 0;
        for (int64_t d = 0; d < h.dim; ++d)
          dy_v += in[5].at(row, head * h.dim + d) * in[2].at(j, kv * h.dim + d);
        const double ds = p * (dy_v - dy_y) * h.scale;
        for (int64_t d = 0; d < h.dim; ++d) {
          out[0].at(row, head * h.dim + d) += ds * in[1].at(j, kv * h.dim + d);
          out[1].at(j, kv * h.dim + d) += ds * in[0].at(row, head * h.dim + d);
          out[2].at(j, kv * h.dim + d) += p * in[5].at(row, head * h.dim + d);
        }
      }
    }
  }
  return out;
}

std::vector<Matrix> embedding(const std::map<std::string, double>&,
                              const std::map<std::string, int64_t>&, const std::vector<Matrix>& in,
                              const std::vector<Matrix>& shapes) {
  std::vector<Matrix> out = shapes;
  for (int64_t i = 0; i < out[0].rows; ++i) {
    const auto id = static_cast<int64_t>(in[1].data[static_cast<size_t>(i)]);
    require(id >= 0 && id < in[0].rows, "embedding: id " + std::to_string(id) + " in row " +
                                            std::to_string(i) + " is outside the table of " +
                                            std::to_string(in[0].rows) + " rows");
    for (int64_t c = 0; c < out[0].cols; ++c) out[0].at(i, c) = in[0].at(id, c);
  }
  return out;
}

// dx [M, D], ids [M, 1], optionally a tensor [V, D] to add into -> [V, D].
std::vector<Matrix> embedding_backward(const std::map<std::string, double>&,
                                       const std::map<std::string, int64_t>&,
                                       const std::vector<Matrix>& in,
                                       const std::vector<Matrix>& shapes) {
  std::vector<Matrix> out = shapes;
  std::fill(out[0].data.begin(), out[0].data.end(), 0);
  if (in.size() > 2) out[0].data = in[2].data;
  for (int64_t i = 0; i < in[0].rows; ++i) {
    const auto id = static_cast<int64_t>(in[1].data[static_cast<size_t>(i)]);
    for (int64_t c = 0; c < out[0].cols; ++c) out[0].at(id, c) += in[0].at(i, c);
  }
  return out;
}

std::vector<Value> attention_adjoint(const Node& call, const std::vector<Value>& in,
                                     const std::vector<Value>& results,
                                     const std::vector<Value>& cotangents) {
  require(cotangents[1].graph == nullptr,
          "attention: its log-sum-exp is not differentiable; use the output only");
  OpaqueDescription adjoint;
  adjoint.function = "attention_backward";
  adjoint.operands = {in[0], in[1], in[2], results[0], results[1], cotangents[0]};
  adjoint.results = {in[0].shape(), in[1].shape(), in[2].shape()};
  adjoint.result_types = {DType::bf16, DType::bf16, DType::bf16};
  adjoint.attributes = call.attributes;
  adjoint.sizes = call.sizes;
  return opaque(adjoint);
}

std::vector<Value> embedding_adjoint(const Node&, const std::vector<Value>& in,
                                     const std::vector<Value>&,
                                     const std::vector<Value>& cotangents) {
  OpaqueDescription adjoint;
  adjoint.function = "embedding_backward";
  adjoint.operands = {cotangents[0], in[1]};
  adjoint.results = {in[0].shape()};
  adjoint.result_types = {DType::bf16};
  return {opaque(adjoint)[0], Value{}};
}

constexpr OpaqueInfo kOpaque[] = {
    {"attention", attention_adjoint, attention},
    {"attention_backward", nullptr, attention_backward},
    {"embedding", embedding_adjoint, embedding},
    {"embedding_backward", nullptr, embedding_backward},
};

}  // namespace

const OpaqueInfo& opaque_info(std::string_view function) {
  for (const OpaqueInfo& row : kOpaque) {
    if (row.function == function) return row;
  }
  throw Error("opaque function \"" + std::string(function) +
              "\" is not known; add a row to src/ir/opaque.cc");
}

}  // namespace coda
