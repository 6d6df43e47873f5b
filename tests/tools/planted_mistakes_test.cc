// SPDX-License-Identifier: Apache-2.0
// Mistakes that authors of programs make, planted one by one into programs that are right: `coda
// check` with the author's formula passes the right program and finds each mistake, though every
// planted one is well formed and computed by the backend as it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "tools/run_command.h"

namespace coda {
namespace planted_mistakes {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Mistake {
  const char* name;
  const char* right;
  const char* wrong;
};
struct Case {
  const char* name;
  const char* program;  // statements, perhaps of several programs (split at ---)
  const char* formula;
  std::vector<Mistake> mistakes;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"projection",
       "acc = gemm(y[M, D], w[D, D], nt)\n"
       "x1 = acc + tile(x[M, D])\n"
       "store(x1, x1)\n"
       "store(h, x1 * per_column(scale[D]))\n"
       "row_partial(squares, sum(x1 * x1))\n",
       "x1 = x + y @ w.T\nh = x1 * scale\nsquares = sum(x1 ** 2, axis=1)",
       {{"the weight is not transposed", "w[D, D], nt", "w[D, D], nn"},
        {"the residual is missing", "acc + tile(x[M, D])", "acc + 0 * tile(x[M, D])"},
        {"the residual is subtracted", "acc + tile", "acc - tile"},
        {"the product is stored in the residual's place", "store(x1, x1)", "store(x1, acc)"},
        {"the partial is of the wrong value", "sum(x1 * x1)", "sum(acc * acc)"},
        {"the partial is of values that are not squared", "sum(x1 * x1)", "sum(x1)"},
        {"the partial is a maximum", "sum(x1 * x1)", "max(x1 * x1)"},
        {"the weight of the norm is applied twice", "x1 * per_column(scale[D])",
         "x1 * per_column(scale[D]) * per_column(scale)"},
        {"the weight of the norm is left out", "x1 * per_column(scale[D])",
         "x1 + 0 * per_column(scale[D])"}}},
      {"gated",
       "z = gemm(h[M, D], w[2*I, D]) * per_row(r[M])\n"
       "gate, up = split_pairs(z, concatenated)\n"
       "store(a, silu(gate) * up)\n",
       "z = (h @ w.T) * r[:, None]\na = silu(z[:, :I]) * z[:, I:]",
       {{"the columns are paired as neighbours", "concatenated", "interleaved"},
        {"gate and up are exchanged", "gate, up =", "up, gate ="},
        {"the activation is another", "silu(gate)", "gelu(gate)"},
        {"the activation is of the product", "silu(gate) * up", "silu(gate * up)"},
        {"the scale is its reciprocal", "* per_row(r[M])", "/ per_row(r[M])"}}},
      {"a vector of a square",
       "store(out, gemm(x[M, M], w[M, M], nt) * per_row(v[M]))\n",
       "out = (x @ w.T) * v[:, None]",
       {{"the vector lies along the other axis", "per_row(v[M])", "per_column(v[M])"},
        {"the left operand is transposed", "w[M, M], nt", "w[M, M], tt"}}},
      {"loss",
       "y = gemm(x[M, K], w[V, K])\n"
       "row_partial(p, log_sum_exp(y))\n"
       "store(chosen, select_column(y, per_row(target[M]:i32)))\n"
       "---\n"
       "lse = combine_rows(log_sum_exp(p[M, V]), max) + combine_rows(log_sum_exp(p), log_sum)\n"
       "store(loss, lse - per_row(chosen[M]))\n",
       "y = x @ w.T\nloss = logsumexp(y, axis=1) - y[arange(M), target]",
       {{"log_sum is taken for the log-sum-exp",
         "combine_rows(log_sum_exp(p[M, V]), max) + combine_rows(log_sum_exp(p), log_sum)",
         "combine_rows(log_sum_exp(p[M, V]), log_sum)"},
        {"the maximum is taken for the log-sum-exp",
         "combine_rows(log_sum_exp(p[M, V]), max) + combine_rows(log_sum_exp(p), log_sum)",
         "combine_rows(log_sum_exp(p[M, V]), max)"},
        {"the sign of the loss", "lse - per_row(chosen[M])", "per_row(chosen[M]) - lse"}}},
      {"norm",
       "store(r, rsqrt(combine_rows(sum(squares[M, D])) * scalar(inv_d) + 1e-5))\n",
       "r = 1 / sqrt(squares * inv_d + 1e-5)",
       {{"the small number is another", "1e-5", "1e-4"},
        {"the root is missing", "rsqrt", "recip"},
        {"the mean is a sum", "combine_rows(sum(squares[M, D])) * scalar(inv_d)",
         "combine_rows(sum(squares[M, D])) + 0 * scalar(inv_d)"}}},
      {"backward of silu",
       "da = gemm(dy[M, D], w[D, I], nn)\n"
       "g = tile(gate[M, I])\n"
       "s = sigmoid(g)\n"
       "store(dgate, da * s * (1 + g * (1 - s)))\n",
       "s = 1 / (1 + exp(-gate))\ndgate = (dy @ w) * (s + gate * s * (1 - s))",
       {{"a wrong sign", "1 + g * (1 - s)", "1 - g * (1 - s)"},
        {"a term is missing", "s * (1 + g * (1 - s))", "s"},
        {"the derivative at another place", "sigmoid(g)", "sigmoid(-g)"}}},
      {"rotation",
       "a, b = split_pairs(gemm(x[M, D], w[64*H, D]), 64)\n"
       "c = tile(cos[M, 32*H])\n"
       "s = tile(sin[M, 32*H])\n"
       "store(out, merge_pairs(a * c - b * s, b * c + a * s, 64))\n",
       "y = (x @ w.T).reshape(M, H, 2, 32)\n"
       "a = y[:, :, 0]; b = y[:, :, 1]\n"
       "c = cos.reshape(M, H, 32); s = sin.reshape(M, H, 32)\n"
       "out = stack([a * c - b * s, b * c + a * s], axis=2).reshape(M, 64 * H)",
       {{"a wrong sign", "a * c - b * s", "a * c + b * s"},
        {"turned the other way", "a * c - b * s, b * c + a * s", "a * c + b * s, b * c - a * s"},
        {"cosine and sine are exchanged", "tile(cos[M, 32*H])\ns = tile(sin[M, 32*H])",
         "tile(sin[M, 32*H])\ns = tile(cos[M, 32*H])"},
        {"the pairs are neighbours again", ", 64))", ", interleaved))"}}}};
  return all;
}

CommandResult checked(const std::string& statements, const std::string& formula) {
  const TestFolder folder;
  // No two sizes alike, more than a partial's span of columns, and no tile full.
  std::string sizes;
  for (const auto& [symbol, size] : std::vector<std::pair<std::string, int>>{
           {"M", 5}, {"D", 70}, {"I", 9}, {"K", 8}, {"V", 67}, {"H", 2}}) {
    const bool is_used = std::regex_search(statements, std::regex("[\\[ *]" + symbol + "[\\],]"));
    if (is_used) sizes += (sizes.empty() ? "" : ",") + symbol + "=" + std::to_string(size);
  }
  Words words{"check", "--sizes=" + sizes};
  size_t start = 0;
  for (int number = 1; start < statements.size(); ++number) {
    const size_t end = std::min(statements.find("---\n", start), statements.size());
    const std::string name = "p" + std::to_string(number);
    words.push_back(
        folder.write(name + ".coda",
                     "program " + name + " {\n" + statements.substr(start, end - start) + "}\n"));
    start = end + 4;
  }
  return run_coda(words + Words{"--backend", "cpu", "--configurations", "1", "--formula", formula});
}

TEST(PlantedMistakes, TheRightProgramsPass) {
  for (const Case& c : cases()) {
    const CommandResult result = checked(c.program, c.formula);
    EXPECT_EQ(result.status, 0) << c.name << "\n" << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("The program computes what is wanted"));
    EXPECT_THAT(result.out, Not(HasSubstr("WRONG")));
  }
}

TEST(PlantedMistakes, EachIsFound) {
  int planted = 0;
  for (const Case& c : cases()) {
    for (const Mistake& mistake : c.mistakes) {
      std::string program = c.program;
      const size_t place = program.find(mistake.right);
      ASSERT_NE(place, std::string::npos) << c.name << ": " << mistake.name;
      program.replace(place, std::string(mistake.right).size(), mistake.wrong);
      const CommandResult result = checked(program, c.formula);
      EXPECT_EQ(result.status, 1) << c.name << ": " << mistake.name << "\n" << result.out;
      EXPECT_THAT(result.err, HasSubstr("the program does not compute what is wanted"))
          << c.name << ": " << mistake.name;
      ++planted;
    }
  }
  EXPECT_GE(planted, 25);
}

}  // namespace
}  // namespace planted_mistakes
}  // namespace coda
