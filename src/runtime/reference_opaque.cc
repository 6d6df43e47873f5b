// SPDX-License-Identifier: Apache-2.0
// Attention here holds a row of probabilities at a time and nothing else is clever.
#include "runtime/reference_opaque.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "coda/error.h"
#include "runtime/values.h"

namespace coda {
namespace {

using Values = std::vector<double>;

struct Attention {
  int64_t heads, kv_heads, head_dim, tokens;
  double scale;
  bool causal;

  // Scaled scores of query row `row` and head `head`, one for each key it sees, the first of which
  // is `first`.
  Values scores(const Values& q, const Values& k, int64_t row, int64_t head, int64_t& first) const {
    first = row / tokens * tokens;
    const int64_t seen = causal ? row - first + 1 : tokens;
    Values s(static_cast<size_t>(seen), 0.0);
    for (int64_t j = 0; j < seen; ++j)
      for (int64_t d = 0; d < head_dim; ++d)
        s[j] += scale * q[at(row, head, d, heads)] * k[at(first + j, kv(head), d, kv_heads)];
    return s;
  }
  int64_t kv(int64_t head) const { return head / (heads / kv_heads); }
  size_t at(int64_t row, int64_t head, int64_t d, int64_t of_heads) const {
    return static_cast<size_t>((row * of_heads + head) * head_dim + d);
  }
};

Attention attention_of(const OpaqueCall& call, const DimValues& sizes) {
  auto number = [&](const char* name) { return call.attributes.at(name); };
  return {static_cast<int64_t>(number("heads")),
          static_cast<int64_t>(number("kv_heads")),
          static_cast<int64_t>(number("head_dim")),
          call.sizes.at("sequence").evaluate(sizes),
          number("scale"),
          number("causal") != 0};
}

double log_sum_exp(const Values& x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double v : x) sum += std::exp(v - top);
  return top + std::log(sum);
}

void attention(const Attention& a, std::span<const TensorView> t) {
  const Values q = read_values(t[0]), k = read_values(t[1]), v = read_values(t[2]);
  Values y(q.size(), 0.0), lse(static_cast<size_t>(t[0].rows * a.heads));
  for (int64_t row = 0; row < t[0].rows; ++row) {
    for (int64_t head = 0; head < a.heads; ++head) {
      int64_t first = 0;
      const Values s = a.scores(q, k, row, head, first);
      const double sum = lse[row * a.heads + head] = log_sum_exp(s);
      for (size_t j = 0; j < s.size(); ++j)
        for (int64_t d = 0; d < a.head_dim; ++d)
          y[a.at(row, head, d, a.heads)] +=
              std::exp(s[j] - sum) * v[a.at(first + j, a.kv(head), d, a.kv_heads)];
    }
  }
  write_values(y, t[3]);
  write_values(lse, t[4]);
}

// y and lse are not read: the gradient is that of the function, not of its stored results.
void attention_backward(const Attention& a, std::span<const TensorView> t) {
  const Values q = read_values(t[0]), k = read_values(t[1]), v = read_values(t[2]);
  const Values dy = read_values(t[5]);
  Values dq(q.size(), 0.0), dk(k.size(), 0.0), dv(v.size(), 0.0);
  for (int64_t row = 0; row < t[0].rows; ++row) {
    for (int64_t head = 0; head < a.heads; ++head) {
      int64_t first = 0;
      Values p = a.scores(q, k, row, head, first);
      const double sum = log_sum_exp(p);
      Values dp(p.size(), 0.0);
      double mean = 0;  // of dp under p
      for (size_t j = 0; j < p.size(); ++j) {
        p[j] = std::exp(p[j] - sum);
        for (int64_t d = 0; d < a.head_dim; ++d) {
          const size_t value = a.at(first + j, a.kv(head), d, a.kv_heads);
          dp[j] += dy[a.at(row, head, d, a.heads)] * v[value];
          dv[value] += p[j] * dy[a.at(row, head, d, a.heads)];
        }
        mean += p[j] * dp[j];
      }
      for (size_t j = 0; j < p.size(); ++j) {
        const double ds = a.scale * p[j] * (dp[j] - mean);
        for (int64_t d = 0; d < a.head_dim; ++d) {
          const size_t key = a.at(first + j, a.kv(head), d, a.kv_heads);
          dq[a.at(row, head, d, a.heads)] += ds * k[key];
          dk[key] += ds * q[a.at(row, head, d, a.heads)];
        }
      }
    }
  }
  write_values(dq, t[6]);
  write_values(dk, t[7]);
  write_values(dv, t[8]);
}

int64_t checked_id(const Values& ids, int64_t row, int64_t vocabulary) {
  const int64_t id = static_cast<int64_t>(ids[row]);
  require(id >= 0 && id < vocabulary, "embedding: the id of row " + std::to_string(row) + " is " +
                                          std::to_string(id) + "; ids must lie in [0, " +
                                          std::to_string(vocabulary) + ")");
  return id;
}

void embedding(std::span<const TensorView> t) {
  const Values table = read_values(t[0]), ids = read_values(t[1]);
  Values out;
  for (int64_t row = 0; row < t[2].rows; ++row) {
    const auto from = table.begin() + checked_id(ids, row, t[0].rows) * t[0].cols;
    out.insert(out.end(), from, from + t[0].cols);
  }
  write_values(out, t[2]);
}

void embedding_backward(std::span<const TensorView> t) {
  const TensorView& table = t.back();
  const Values gradient = read_values(t[0]), ids = read_values(t[1]);
  Values sum = t.size() == 4 ? read_values(t[2]) : Values(static_cast<size_t>(table.size()), 0.0);
  for (int64_t row = 0; row < t[0].rows; ++row) {
    const int64_t id = checked_id(ids, row, table.rows);
    for (int64_t c = 0; c < table.cols; ++c)
      sum[id * table.cols + c] += gradient[row * table.cols + c];
  }
  write_values(sum, table);
}

class OpaqueKernel : public Kernel {
 public:
  OpaqueKernel(const OpaqueCall& call, const DimValues& sizes) : call_(call), sizes_(sizes) {}
  void run(std::span<const TensorView> tensors) override {
    if (call_.function == "attention")
      attention(attention_of(call_, sizes_), tensors);
    else if (call_.function == "attention_backward")
      attention_backward(attention_of(call_, sizes_), tensors);
    else if (call_.function == "embedding")
      embedding(tensors);
    else
      embedding_backward(tensors);
  }

 private:
  OpaqueCall call_;
  DimValues sizes_;
};

}  // namespace

std::unique_ptr<Kernel> prepare_reference_opaque(const OpaqueCall& call,
                                                 std::span<const TensorDecl> tensors,
                                                 const DimValues& sizes) {
  struct Function {
    const char* name;
    size_t fewest, most;  // operands
  };
  for (const Function& f : {Function{"attention", 5, 5}, Function{"attention_backward", 9, 9},
                            Function{"embedding", 3, 3}, Function{"embedding_backward", 3, 4}}) {
    if (call.function != f.name) continue;
    require(tensors.size() >= f.fewest && tensors.size() <= f.most,
            call.function + ": " + std::to_string(tensors.size()) + " operands");
    return std::make_unique<OpaqueKernel>(call, sizes);
  }
  throw Error("opaque function '" + call.function + "' is unknown to the reference");
}

}  // namespace coda
