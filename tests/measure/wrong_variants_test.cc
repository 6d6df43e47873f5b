// SPDX-License-Identifier: Apache-2.0
// Sixteen kernels as authors write them, and variants of each with one mistake. With three seeds,
// compare_with_formula must accept each kernel and reject each variant. This tests the choice of
// the random inputs: indices must cover their range, counts, variances, probabilities and seeds
// must have valid values, some inputs must be large while others are small, some values must be 0
// or tiny, some must reach the numbers in the text, whole numbers exactly, and scalars must lie on
// both sides of these numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/check.h"
#include "coda/compare.h"
#include "coda/error.h"

namespace coda {
namespace wrong_variants {
namespace {

using testing::HasSubstr;

struct Variant {
  const char* what;
  const char* right;
  const char* wrong;
};
struct Kernel {
  const char* name;
  std::vector<std::string> programs;  // the statements of each program, in running order
  const char* formula;
  std::vector<Variant> variants;
};

const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> all{
      {"dropout of a product",
       {"u = random(scalar(seed), per_row(row[M]:i32), column_index(N))\n"
        "y = gemm(x[M, K], w[N, K]) + per_column(b[N])\n"
        "store(out, tile(x0[M, N]) + where(u < scalar(p), 0, y / (1 - scalar(p))))\n"},
       "u = random(seed, row[:, None], arange(N)[None, :])\n"
       "out = x0 + where(u < p, 0, (x @ w.T + b) / (1 - p))",
       {{"all rows have the mask of the first", "per_row(row[M]:i32)", "0 * per_row(row[M]:i32)"},
        {"what is left is not scaled", "y / (1 - scalar(p))", "y"},
        {"the probability is that of staying", "u < scalar(p)", "u > scalar(p)"},
        {"it is scaled by the other probability", "y / (1 - scalar(p))", "y / scalar(p)"}}},
      {"the statistics of a layer norm",
       {"x = gemm(y[M, K], w[N, K]) + tile(x0[M, N])\n"
        "store(x, x)\nrow_partial(m, mean_m2(x))\n",
        "store(mean, combine_rows(mean_m2(m[M, N]), mean))\n"
        "store(r, rsqrt(combine_rows(mean_m2(m[M, N]), m2) / size(N) + 1e-5))\n"},
       "x = x0 + y @ w.T\nmean = x.mean(axis=1)\nr = 1 / sqrt(var(x, axis=1) + 1e-5)",
       {{"the variance is that of a sample", "/ size(N)", "/ (size(N) - 1)"},
        {"the variance is a sum", "m2) / size(N)", "m2)"},
        {"the small number is another", "1e-5", "1e-6"}}},
      {"a batch norm of stored statistics",
       {"x = gemm(y[M, K], w[N, K])\n"
        "v = max(per_column(variance[N]), 0)\n"
        "store(z, (x - per_column(mean[N])) * rsqrt(v + 1e-5) * per_column(g[N]))\n"},
       "z = (y @ w.T - mean) / sqrt(variance + 1e-5) * g",
       {{"the variance is taken for the deviation", "rsqrt(v + 1e-5)", "recip(v + 1e-5)"},
        {"the mean is added", "x - per_column(mean[N])", "x + per_column(mean[N])"}}},
      {"the gradient of a smoothed loss",
       {"l = tile(l[M, V])\n"
        "hot = column_index(V) == per_row(target[M]:i32)\n"
        "store(dl, (exp(l - per_row(lse[M])) - 0.9 * hot - 0.1 / size(V)) * per_row(dloss[M]))\n"},
       "hot = arange(V)[None, :] == target[:, None]\n"
       "dl = (exp(l - lse[:, None]) - 0.9 * hot - 0.1 / V) * dloss[:, None]",
       {{"the class is the next one", "per_row(target[M]:i32)", "per_row(target[M]:i32) + 1"},
        {"the class is the first", "per_row(target[M]:i32)", "0 * per_row(target[M]:i32)"},
        {"the class is never the last", "column_index(V) == per_row(target[M]:i32)",
         "(column_index(V) == per_row(target[M]:i32)) * (column_index(V) < size(V) - 1)"},
        {"the rest is not divided", "0.1 / size(V)", "0.1"}}},
      {"sequences of their own lengths",
       {"z = gemm(q[M, K], k[N, K])\n"
        "z2 = where(column_index(N) < per_row(length[M]:i32), z, -1000)\n"
        "store(z, z2)\n"},
       "z = where(arange(N)[None, :] < length[:, None], q @ k.T, -1000)",
       {{"one more is in", "column_index(N) <", "column_index(N) <="},
        {"all are in", "column_index(N) < per_row(length[M]:i32)",
         "column_index(N) >= 0 * per_row(length[M]:i32)"}}},
      {"a gate with a learned sharpness",
       {"store(y, tanh(tile(x[M, N]) * scalar(s)))\n"},
       "y = tanh(x * s)",
       {{"what is gated is clipped", "tile(x[M, N])", "min(max(tile(x[M, N]), -20), 20)"}}},
      {"a row in 8 bits, with a magnitude",
       {"z = tile(x[M, N])\n"
        "store(q, min(max(z / per_row(scale[M]), -448), 448))\n"
        "abs_max_into(largest, z)\n"},
       "q = clip(x / scale[:, None], -448, 448)\nlargest = maximum(largest, abs(x).max())",
       {{"nothing is clipped", "min(max(z / per_row(scale[M]), -448), 448)",
         "z / per_row(scale[M])"},
        {"it is clipped below alone", "min(max(z / per_row(scale[M]), -448), 448)",
         "max(z / per_row(scale[M]), -448)"},
        {"the magnitude is of the quotient", "abs_max_into(largest, z)",
         "abs_max_into(largest, z / per_row(scale))"},
        {"the magnitude is of half", "abs_max_into(largest, z)", "abs_max_into(largest, z / 2)"}}},
      {"a capped loss",
       {"l = 30 * tanh(gemm(h[M, K], w[V, K]) / 30)\n"
        "store(chosen, select_column(l, per_row(target[M]:i32)))\n"
        "row_partial(sums, log_sum_exp(l))\n",
        "store(loss, combine_rows(log_sum_exp(sums[M, V]), log_sum_exp) - per_row(chosen[M]))\n"},
       "l = 30 * tanh(h @ w.T / 30)\nloss = logsumexp(l, axis=1) - l[arange(M), target]",
       {{"there is no cap", "30 * tanh(gemm(h[M, K], w[V, K]) / 30)", "gemm(h[M, K], w[V, K])"},
        {"the cap is another", "30 * tanh(gemm(h[M, K], w[V, K]) / 30)",
         "50 * tanh(gemm(h[M, K], w[V, K]) / 50)"}}},
      {"a step of Adam",
       {"g = tile(g[M, N])\n"
        "v = tile(v0[M, N]) * 0.98 + g * g * 0.02\n"
        "store(v1, v)\n"
        "store(w1, tile(w0[M, N]) - scalar(lr) * g / (sqrt(v) + 1e-8))\n"},
       "v1 = v0 * 0.98 + g * g * 0.02\nw1 = w0 - lr * g / (sqrt(v1) + 1e-8)",
       {{"the small number is beside the square", "(sqrt(v) + 1e-8)", "sqrt(v + 1e-8)"},
        {"there is no small number", "(sqrt(v) + 1e-8)", "sqrt(v)"}}},
      {"the gradient of relu",
       {"store(dx, where(tile(x[M, N]) > 0, tile(dy[M, N]), 0))\n"},
       "dx = dy * (x > 0)",
       {{"0 is in", "> 0", ">= 0"}}},
      {"a clipped gate",
       {"g = min(tile(g[M, N]), 100)\n"
        "u = min(max(tile(u[M, N]) / per_row(s[M]), -5000), 5000)\n"
        "store(y, where(per_row(age[M]:i32) < 300, g * u, 0))\n"},
       "y = minimum(g, 100) * clip(u / s[:, None], -5000, 5000) * (age < 300)[:, None]",
       {{"the gate is not clipped", "min(tile(g[M, N]), 100)", "tile(g[M, N])"},
        {"the gate is clipped elsewhere", "min(tile(g[M, N]), 100)", "min(tile(g[M, N]), 110)"},
        {"a quotient is not clipped", "min(max(tile(u[M, N]) / per_row(s[M]), -5000), 5000)",
         "tile(u[M, N]) / per_row(s[M])"},
        {"a quotient is clipped above alone",
         "min(max(tile(u[M, N]) / per_row(s[M]), -5000), 5000)",
         "min(tile(u[M, N]) / per_row(s[M]), 5000)"},
        {"every age is in", "per_row(age[M]:i32) < 300", "0 * per_row(age[M]:i32) < 300"}}},
      {"a window of attention",
       {"z = gemm(q[M, K], k[N, K])\n"
        "store(z, where(per_row(position[M]:i32) - column_index(N) < 128, z, -1000))\n"},
       "z = where(position[:, None] - arange(N)[None, :] < 128, q @ k.T, -1000)",
       {{"there is no window", "< 128", "< 100000"}, {"it is one shorter", "< 128", "< 127"}}},
      {"a class that is ignored",
       {"hot = column_index(V) == per_row(target[M]:i32)\n"
        "d = exp(tile(l[M, V]) - per_row(lse[M])) - hot\n"
        "store(dl, where(per_row(target) == -100, 0, d))\n"},
       "hot = arange(V)[None, :] == target[:, None]\n"
       "dl = where((target == -100)[:, None], 0, exp(l - lse[:, None]) - hot)",
       {{"it is not ignored", "where(per_row(target) == -100, 0, d)", "d"}}},
      {"a rate of two phases",
       {"rate = where(scalar(step:i32) < 1000, scalar(a), scalar(b))\n"
        "store(w1, tile(w0[M, N]) - rate * tile(g[M, N]))\n"},
       "w1 = w0 - where(step < 1000, a, b) * g",
       {{"there is one phase", "scalar(step:i32) < 1000", "0 * scalar(step:i32) < 1000"},
        {"it is a step longer", "< 1000", "<= 1000"},
        {"the second phase is a step", "< 1000", "!= 1000"}}},
      {"scalars on both sides of numbers",
       {"store(y, where(scalar(s) > 0, tile(x[M, N]), -tile(x)) * min(scalar(c), 1))\n"
        "store(z, where(scalar(t) < 0.5, tile(x), 0) + where(scalar(t) < scalar(u), 1, 0))\n"},
       "y = where(s > 0, x, -x) * minimum(c, 1)\nz = where(t < 0.5, x, 0) + (t < u)",
       {{"the sign does not matter", "scalar(s) > 0", "0 * scalar(s) == 0"},
        {"nothing is clipped", "min(scalar(c), 1)", "scalar(c)"},
        {"the bound is another", "< 0.5", "< 0.55"},
        {"there is no bound", "scalar(t) < 0.5", "0 * scalar(t) < 0.5"},
        {"the second scalar is larger", "scalar(t) < scalar(u)",
         "0 * scalar(t) < 1 + 0 * scalar(u)"},
        {"the second scalar is smaller", "scalar(t) < scalar(u)",
         "0 * scalar(t) > 1 + 0 * scalar(u)"}}},
      {"a logarithm of what is clamped",
       {"store(y, log(max(tile(p[M, N]), 1e-5)) * rsqrt(max(per_row(v[M]), 1e-6)))\n"},
       "y = log(maximum(p, 1e-5)) / sqrt(maximum(v, 1e-6))[:, None]",
       {{"0 has an infinite logarithm", "log(max(tile(p[M, N]), 1e-5))", "log(tile(p[M, N]))"},
        {"0 has an infinite root", "rsqrt(max(per_row(v[M]), 1e-6))", "rsqrt(per_row(v[M]))"},
        {"the bound is added", "max(per_row(v[M]), 1e-6)", "per_row(v[M]) + 1e-6"}}},
      {"weights of 8 bits, and a mask",
       {"q = (tile(q[M, N]:u8) - per_column(zero[N])) * per_column(scale[N])\n"
        "store(y, where(tile(keep[M, N]:u8), q, 0) + tile(x[M, N]:u8) / 255)\n"
        "store(b, tile(x) * (1 - tile(keep)))\n"},
       "y = where(keep, (q - zero) * scale, 0) + x / 255\nb = where(keep, 0, x)",
       {{"a weight is a mask", "(tile(q[M, N]:u8) -", "(min(tile(q[M, N]:u8), 1) -"},
        {"the largest byte is another", "/ 255", "/ 256"}}},
      {"two vectors of two programs",
       {"store(a, tile(x[M, N]) * per_row(left[M]))\n",
        "store(b, tile(a[M, N]) + per_row(right[M]) + per_row(steps[M]:i32))\n"},
       "b = x * left[:, None] + right[:, None] + steps[:, None]",
       {{"whole numbers are left out", "per_row(steps[M]:i32)", "0 * per_row(steps[M]:i32)"},
        {"both vectors are the second", "per_row(left[M])",
         "(per_row(right[M]) + 0 * per_row(left[M]))"}}}};
  return all;
}

const DimValues kAll{{"M", 13}, {"N", 70}, {"K", 9}, {"V", 67}};

std::vector<Program> programs_of(const std::vector<std::string>& statements) {
  std::vector<Program> programs;
  for (const std::string& one : statements)
    programs.push_back(
        parse_program("program p" + std::to_string(programs.size()) + " {\n" + one + "}\n"));
  return programs;
}

constexpr uint64_t kSeeds[] = {1, 2, 3};

TEST(WrongVariants, TheRightKernelsAreRight) {
  for (const Kernel& kernel : kernels()) {
    for (const uint64_t seed : kSeeds) {
      const Comparison all =
          compare_with_formula(programs_of(kernel.programs), kAll, kernel.formula, seed);
      EXPECT_TRUE(all.is_right()) << kernel.name << " at seed " << seed << "\n" << text(all);
    }
  }
}

TEST(WrongVariants, EachIsNoticedAtEachSeed) {
  for (const Kernel& kernel : kernels()) {
    for (const Variant& variant : kernel.variants) {
      std::vector<std::string> programs = kernel.programs;
      int changed = 0;
      for (std::string& program : programs) {
        const size_t at = program.find(variant.right);
        if (at == std::string::npos) continue;
        program.replace(at, std::string(variant.right).size(), variant.wrong);
        ++changed;
      }
      ASSERT_EQ(changed, 1) << variant.what;
      for (const uint64_t seed : kSeeds) {
        const Comparison all =
            compare_with_formula(programs_of(programs), kAll, kernel.formula, seed);
        EXPECT_FALSE(all.is_right())
            << kernel.name << ", " << variant.what << ", at seed " << seed << "\n"
            << text(all);
      }
    }
  }
}

// At large inputs the entropy is near 0 and the difference of two numbers in the thousands.
TEST(WrongVariants, TheRoundingOfAFormulaIsNoMistake) {
  const auto compared = [](const std::string& factor, uint64_t seed) {
    return compare_with_formula(
        programs_of({"row_partial(p, entropy(gemm(h[M, K], w[V, K])))\n",
                     "store(e, combine_rows(entropy(p[M, V]), entropy)" + factor + ")\n"}),
        {{"M", 131}, {"V", 203}, {"K", 77}},
        "z = h @ w.T\ne = logsumexp(z, axis=1) - sum(softmax(z, axis=1) * z, axis=1)", seed);
  };
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Comparison all = compared("", seed);
    EXPECT_TRUE(all.is_right()) << "at seed " << seed << "\n" << text(all);
    EXPECT_FALSE(compared(" * 1.000001", seed).is_right());
  }
}

// A scalar that multiplies sums is drawn as exactly one over the number of summed terms if the
// formula does not read the scalar. If the formula reads the scalar, any value serves.
TEST(WrongVariants, ACountThatIsPassedIsTheCount) {
  const std::string moments =
      "x = tile(x[M, N])\nrow_partial(s, sum(x))\nrow_partial(q, sum(x * x))\n";
  const std::string finalizer =
      "mean = combine_rows(sum(s[M, N])) * scalar(part)\n"
      "v = max(combine_rows(sum(q[M, N])) * scalar(part) - mean * mean, 0)\n"
      "store(r, rsqrt(v + 1e-5))\n";
  const Comparison of_sizes = compare_with_formula(programs_of({moments, finalizer}), kAll,
                                                   "r = 1 / sqrt(var(x, axis=1) + 1e-5)", 1);
  EXPECT_TRUE(of_sizes.is_right()) << text(of_sizes);
  EXPECT_THAT(text(of_sizes), HasSubstr("the formula does not read part: it is 1 / N here, which a "
                                        "program has as size(N)"));
  const Comparison of_input =
      compare_with_formula(programs_of({moments, finalizer}), kAll,
                           "m = sum(x, axis=1) * part\n"
                           "r = 1 / sqrt(sum(x ** 2, axis=1) * part - m ** 2 + 1e-5)",
                           1);
  EXPECT_TRUE(of_input.is_right()) << text(of_input);
}

TEST(WrongVariants, WhereBothAreNanNothingIsRightUnlessTheFormulaSaysSo) {
  const std::vector<Program> programs = programs_of({"store(y, log(-abs(tile(x[M, N])) - 1))\n"});
  const Comparison silent = compare_with_formula(programs, kAll, "y = log(-abs(x) - 1)", 1);
  EXPECT_FALSE(silent.is_right());
  EXPECT_THAT(text(silent), HasSubstr("910 of 910 elements are NaN in both, so nothing "
                                      "was compared: write where NaN is intended"));
  EXPECT_TRUE(compare_with_formula(programs, kAll, "y = x * nan", 1).is_right());
  const CheckReport report = check_program(programs.front(), kAll, {.backend = "cpu"});
  EXPECT_FALSE(report.is_right());
  EXPECT_THAT(text(report), HasSubstr("all elements are NaN"));
}

// ---- Backwards ----

struct Backward {
  const char* name;
  std::string forward;
  std::vector<std::string> backward;
  std::vector<Variant> variants;
};

const std::vector<Backward>& backwards() {
  static const std::vector<Backward> all{
      {"a mean of squares",
       "row_partial(p, sum(tile(x[M, N]) * tile(x)))\n",
       {"store(dx, 2 * tile(x[M, N]) * per_row(dp[M]))\n"},
       {{"the factor is missing", "2 * tile", "tile"}}},
      {"a norm behind its statistic, whose width is a number",
       "store(r, rsqrt(combine_rows(mean_m2(m[M, N]), m2) / size(N) + 1e-5) * per_row(s[M]))\n",
       {"store(ds, rsqrt(combine_rows(mean_m2(m[M, N]), m2) / size(N) + 1e-5) * per_row(dr[M]))\n"},
       {{"the width is missing", " / size(N)", ""}}},
      {"a capped value",
       "store(l, 30 * tanh(tile(z[M, N]) / 30))\n",
       {"t = tanh(tile(z[M, N]) / 30)\nstore(dz, tile(dl[M, N]) * (1 - t * t))\n"},
       {{"the cap has no derivative", "(1 - t * t)", "(1 + 0 * t)"}}},
      {"a clipped value",
       "store(y, min(max(tile(x[M, N]), -10), 10))\n",
       {"store(dx, where(abs(tile(x[M, N])) < 10, tile(dy[M, N]), 0))\n"},
       {{"what is clipped has a gradient", "where(abs(tile(x[M, N])) < 10, tile(dy[M, N]), 0)",
         "tile(dy[M, N]) + 0 * tile(x[M, N])"}}},
      {"dropout",
       "u = random(scalar(seed), per_row(row[M]:i32), column_index(N))\n"
       "store(y, where(u < 0.3, 0, tile(x[M, N]) / 0.7))\n",
       {"u = random(scalar(seed), per_row(row[M]:i32), column_index(N))\n"
        "store(dx, where(u < 0.3, 0, tile(dy[M, N]) / 0.7))\n"},
       {{"the mask is another", "random(scalar(seed)", "random(scalar(seed) + 1"}}},
      {"clips that only large inputs reach, and scalars on one side of theirs",
       "store(y, where(scalar(s) > 0, min(tile(x[M, N]), 100), 0) * min(scalar(n), 1))\n"
       "store(l, where(per_row(t[M]:i32) == -100, 0, tile(z[M, N])))\n",
       {"dy = where(scalar(s) > 0, tile(dy[M, N]), 0) * min(scalar(n), 1)\n"
        "store(dx, where(tile(x[M, N]) < 100, dy, 0))\n"
        "store(dz, where(per_row(t[M]:i32) == -100, 0, tile(dl[M, N])))\n"},
       {{"what is clipped has a gradient", "tile(x[M, N]) < 100", "tile(x[M, N]) < 9000"},
        {"the sign does not matter", "scalar(s) > 0", "0 * scalar(s) == 0"},
        {"the scalar is not clipped", "min(scalar(n), 1)", "scalar(n)"},
        {"no class is ignored", "== -100", "== -900"}}},
      {"a slope beside a large number",
       "store(z, where(column_index(N) < per_row(p[M]:i32), tile(v[M, N]) * scalar(slope), "
       "-1000))\n",
       {"dz = where(column_index(N) < per_row(p[M]:i32), tile(v[M, N]) * tile(dz[M, N]), 0)\n"
        "row_partial(t, sum(dz))\n",
        "store(dslope, reduce_vector(combine_rows(sum(t[M, N]))))\n"},
       {{"what is masked counts", "column_index(N) < per_row(p[M]:i32)",
         "column_index(N) < 1000 + per_row(p[M]:i32)"}}},
      {"a partial that the backward reads as its reduction",
       "row_partial(p, entropy(tile(z[M, N])))\nrow_partial(l, log_sum_exp(tile(z)))\n",
       {"d = tile(z[M, N]) - per_row(l[M])\n"
        "store(dz, -exp(d) * (d + per_row(p[M])) * per_row(dp[M]))\n"},
       {{"the entropy is left out", "(d + per_row(p[M]))", "(d + 0 * per_row(p[M]))"}}},
      {"an intermediate value",
       "z = gemm(x[M, K], w[N, K])\nstore(z, z)\nstore(a, z * sigmoid(z))\n",
       {"z = tile(z[M, N])\ns = sigmoid(z)\n"
        "store(dz, tile(da[M, N]) * s * (1 + z * (1 - s)))\n",
        "store(dx, gemm(dz[M, N], w[N, K]))\n"},
       {{"a term is missing", "s * (1 + z * (1 - s))", "s"}}}};
  return all;
}

TEST(WrongVariants, WrittenBackwardsAreRightAndTheirVariantsAreNot) {
  const DimValues sizes{{"M", 5}, {"N", 11}, {"K", 8}};
  for (const Backward& one : backwards()) {
    const std::vector<Program> forward = programs_of({one.forward});
    for (const uint64_t seed : kSeeds) {
      const BackwardReport right =
          check_written_backward(forward, programs_of(one.backward), sizes, seed);
      EXPECT_TRUE(right.is_right()) << one.name << "\n" << text(right);
      EXPECT_TRUE(check_backward(forward, sizes, seed).is_right()) << one.name;
      for (const Variant& variant : one.variants) {
        std::vector<std::string> programs = one.backward;
        const size_t at = programs.front().find(variant.right);
        ASSERT_NE(at, std::string::npos) << variant.what;
        programs.front().replace(at, std::string(variant.right).size(), variant.wrong);
        EXPECT_FALSE(check_written_backward(forward, programs_of(programs), sizes, seed).is_right())
            << one.name << ", " << variant.what << ", at seed " << seed;
      }
    }
  }
}

// A norm that is clamped from below is positive. A negative one would give 1e12, beside which the
// gradients of the others are rounding errors.
TEST(WrongVariants, TheGradientOfAClampedNormIsCompared) {
  const std::vector<Program> forward =
      programs_of({"store(y, tile(x[M, N]) / max(per_row(n[M]), 1e-12))\n"});
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    for (const std::string factor : {"-1", "-2"}) {
      const BackwardReport report = check_written_backward(
          forward,
          programs_of({"row_partial(s, sum(tile(dy[M, N]) * tile(x[M, N])))\n",
                       "n = per_row(n[M])\nstore(dn, where(n < 1e-12, 0, " + factor +
                           " * combine_rows(sum(s[M, N])) / (n * n)))\n"}),
          {{"M", 5}, {"N", 8}}, seed);
      EXPECT_EQ(report.is_right(), factor == "-1") << factor << " at seed " << seed;
    }
  }
}

TEST(WrongVariants, TheGradientOfAStoredValueIsComparedToo) {
  const std::vector<Program> forward = programs_of({backwards().back().forward});
  const BackwardReport report = check_written_backward(
      forward, programs_of(backwards().back().backward), {{"M", 5}, {"N", 11}, {"K", 8}}, 1);
  std::vector<std::string> names;
  for (const CheckedGradient& gradient : report.gradients) names.push_back(gradient.name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("dz", "dx"));
}

}  // namespace
}  // namespace wrong_variants
}  // namespace coda
