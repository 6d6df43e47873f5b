// SPDX-License-Identifier: Apache-2.0
// Attention's definition in float64. Naive on purpose: every kernel is held against it.
#include <algorithm>
#include <cmath>

#include "operations/attention.h"

namespace coda {
namespace {

// The rows of the keys that each row sees.
std::vector<TokenRange> seen_rows(const AttentionShape& a, const std::vector<Matrix>& in) {
  const auto end = [&](int64_t row, int64_t which) {
    return static_cast<int64_t>(in[a.documents(in.size())].at(row, which));
  };
  std::vector<TokenRange> rows =
      a.has_documents ? checked_documents(a, end) : sequences_as_documents(a);
  for (int64_t row = 0; row < std::ssize(rows); ++row) {
    const int64_t start = row / a.tokens * a.tokens;
    const TokenRange keys = keys_of(a, row - start, rows[row]);
    rows[row] = {start + keys.first, start + keys.last};
  }
  return rows;
}

// A score and its derivative with respect to the product of query and key.
struct Score {
  double value, slope;
};

Score score_of(const AttentionShape& a, const Matrix& q, const Matrix& k, int64_t row, int64_t head,
               int64_t key) {
  double dot = 0;
  for (int64_t d = 0; d < a.head_dim; ++d)
    dot += q.at(row, head * a.head_dim + d) * k.at(key, head / a.group() * a.head_dim + d);
  if (a.soft_cap == 0) return {dot * a.scale, a.scale};
  const double t = std::tanh(dot * a.scale / a.soft_cap);
  return {a.soft_cap * t, (1 - t * t) * a.scale};
}

}  // namespace

void evaluate_attention(const OperationSettings& settings, const std::vector<Matrix>& in,
                        std::vector<Matrix>& out) {
  const AttentionShape a = attention_shape(settings, in[0].rows);
  const std::vector<TokenRange> all_seen = seen_rows(a, in);
  for (int64_t row = 0; row < in[0].rows; ++row) {
    const TokenRange& seen = all_seen[row];
    for (int64_t head = 0; head < a.heads; ++head) {
      const double sink = a.has_sinks ? in.back().at(0, head) : -HUGE_VAL;
      if (seen.first >= seen.last) {
        out[1].at(row, head) = sink;
        continue;
      }
      std::vector<double> scores{sink};
      for (int64_t j = seen.first; j < seen.last; ++j)
        scores.push_back(score_of(a, in[0], in[1], row, head, j).value);
      const double top = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      for (double& s : scores) total += s = std::exp(s - top);
      out[1].at(row, head) = top + std::log(total);
      for (int64_t d = 0; d < a.value_dim; ++d) {
        double sum = 0;
        for (int64_t j = seen.first; j < seen.last; ++j) {
          sum += scores[static_cast<size_t>(j - seen.first + 1)] *
                 in[2].at(j, head / a.group() * a.value_dim + d);
        }
        out[0].at(row, head * a.value_dim + d) = sum / total;
      }
    }
  }
}

// p = exp(s - lse); dv = pᵀ dy; ds = p (dy·v - dy·y) times the score's slope; dq = ds k; dk = dsᵀ
// q. A sink is a key whose value is 0.
void evaluate_attention_backward(const OperationSettings& settings, const std::vector<Matrix>& in,
                                 std::vector<Matrix>& out) {
  const AttentionShape a = attention_shape(settings, in[0].rows);
  const std::vector<TokenRange> all_seen = seen_rows(a, in);
  for (int64_t row = 0; row < in[0].rows; ++row) {
    const TokenRange& seen = all_seen[row];
    for (int64_t head = 0; head < a.heads; ++head) {
      const int64_t q = head * a.head_dim, k = head / a.group() * a.head_dim;
      const int64_t y = head * a.value_dim, v = head / a.group() * a.value_dim;
      double dy_y = 0;
      for (int64_t d = 0; d < a.value_dim; ++d) dy_y += in[5].at(row, y + d) * in[3].at(row, y + d);
      if (a.has_sinks && dy_y != 0)
        out[3].at(0, head) -= std::exp(in.back().at(0, head) - in[4].at(row, head)) * dy_y;
      for (int64_t j = seen.first; j < seen.last; ++j) {
        const Score score = score_of(a, in[0], in[1], row, head, j);
        const double p = std::exp(score.value - in[4].at(row, head));
        double dy_v = 0;
        for (int64_t d = 0; d < a.value_dim; ++d) {
          dy_v += in[5].at(row, y + d) * in[2].at(j, v + d);
          out[2].at(j, v + d) += p * in[5].at(row, y + d);
        }
        const double ds = p * (dy_v - dy_y) * score.slope;
        for (int64_t d = 0; d < a.head_dim; ++d) {
          out[0].at(row, q + d) += ds * in[1].at(j, k + d);
          out[1].at(j, k + d) += ds * in[0].at(row, q + d);
        }
      }
    }
  }
}

}  // namespace coda
