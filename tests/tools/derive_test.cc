// SPDX-License-Identifier: Apache-2.0
// `coda derive` prints programs that parse and compute what they say, by `coda check`; nothing that
// a program stores is dropped without a word. That the gradients are right is in
// tests/plan/derived_backward_test.cc; library_test.cc derives each program of the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tools/run_command.h"

namespace coda {
namespace derive_command {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kPrograms = std::string(CODA_SOURCE_DIR) + "/programs/";

// Of the programs in what is printed.
std::vector<std::string> names_in(const std::string& out) {
  std::vector<std::string> names;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("program ")) continue;
    std::string name = line.substr(8, line.size() - 10);
    std::erase(name, '"');
    names.push_back(name);
  }
  return names;
}

// Files of a folder as a shell's FOLDER/*.coda has them.
std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// What the forward stores in bf16 is read so, gradients have their tensors' types, and the files
// are named in the order in which they run.
TEST(Derive, TypesStayAndFilesAreInOrder) {
  const TestFolder folder;
  const std::string file = folder.write("mine.coda", R"(program mine {
  z = gemm(x[M, K]:bf16, w[N, K]:bf16)
  store(z:bf16, z)
  store(a:bf16, gelu(z) + tile(b[M, N]))
})");
  const CommandResult derived = run_coda({"derive", file, "--out", folder / "backward"});
  ASSERT_EQ(derived.status, 0) << derived.err;
  std::string texts;
  Words check{"check", "--backend", "cpu", "--brief", "--backward-of", file};
  for (const std::string& name : files_of(folder / "backward")) {
    texts += read_bytes(name);
    check.push_back(name);
  }
  EXPECT_THAT(texts, AllOf(HasSubstr("tile(z[M, N]:bf16)"), HasSubstr("tile(grad_of_a[M, N]:bf16)"),
                           HasSubstr("store(grad_to_x:bf16"), HasSubstr("store(grad_to_w:bf16")));
  const CommandResult checked = run_coda(check);
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
}

// With a number of heads that is a symbol, and with what bends at 0.
TEST(Derive, AWeightOfEachHeadHasAGradient) {
  const TestFolder folder;
  const std::string file = folder.write("qk_norm.coda", R"(program qk_norm {
  x = gemm(h[M, D], w[64*H, D])
  scale = repeat_group(rsqrt(reduce_group(x * x, 64) * 0.015625 + 1e-6), 64)
  store(q, relu(x * scale * per_column(g[64], repeat=H)))
})");
  const CommandResult derived = run_coda({"derive", file, "--out", folder / "backward"});
  ASSERT_EQ(derived.status, 0) << derived.err;
  Words check{"check", "--backend", "cpu", "--brief", "--sizes", "M=50,D=70,H=3"};
  bool has_weight = false;
  for (const std::string& program : files_of(folder / "backward")) {
    has_weight = has_weight || read_bytes(program).find("store(grad_to_g") != std::string::npos;
    const CommandResult checked = run_coda(check + Words{program});
    EXPECT_EQ(checked.status == 0 || checked.err.find("is no size of") != std::string::npos, true)
        << checked.out << checked.err;
  }
  EXPECT_TRUE(has_weight);
}

TEST(Derive, PrintsWhatItWrites) {
  const std::vector<Words> examples{
      {kPrograms + "residual_norm.coda"},
      {kPrograms + "residual_norm.coda", kPrograms + "rms_statistic.coda"},
      {kPrograms + "swiglu.coda"}};
  for (const Words& files : examples) {
    const CommandResult printed = run_coda(Words{"derive"} + files);
    ASSERT_EQ(printed.status, 0) << printed.err;
    TestFolder folder;
    const CommandResult written = run_coda(Words{"derive", "--out", folder / "backward"} + files);
    ASSERT_EQ(written.status, 0) << written.err;
    Words check{"check", "--backend", "cpu", "--brief"};
    const std::vector<std::string> names = files_of(folder / "backward");
    EXPECT_EQ(names.size(), names_in(printed.out).size());
    EXPECT_GE(names.size(), 2U);
    for (const std::string& file : names) {
      EXPECT_THAT(printed.out, HasSubstr("\n" + read_bytes(file)));
      check.push_back(file);
    }
    const CommandResult checked = run_coda(check);
    EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
  }
}

TEST(Derive, SaysWhatIsGiven) {
  TestFolder folder;
  const std::string file = folder.write("mine.coda",
                                        "program mine {\n"
                                        "  y = gemm(x[M, K], w[N, K])\n"
                                        "  store(y, y)\n"
                                        "  row_partial(squares, sum(y * y))\n"
                                        "}\n");
  const CommandResult result = run_coda({"derive", file});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("grad_of_squares, grad_of_y"),
                                HasSubstr("store(grad_to_x"), HasSubstr("store(grad_to_w")));
}

// Beside finite differences of the forward, in float64. That what is rounded is found is in
// tests/plan/derived_backward_test.cc.
TEST(Derive, LargestValuesHaveAGradient) {
  const TestFolder folder;
  const auto write = [&](const std::string& name, const std::string& lines) {
    return folder.write(name + ".coda", "program " + name + " {\n" + lines + "\n}\n");
  };
  const std::string product = "  y = gemm(x[M, K]:bf16, w[N, K]:bf16)\n  store(y:bf16, y)\n";
  const std::vector<Words> examples{
      {write("partials", product + "  row_partial(p, max(y))\n  column_partial(q, abs_max(y))")},
      {write("maxima", product + "  row_partial(p, max(y))"),
       write("finish", "  store(largest, combine_rows(max(p[M, N])))")},
      {write("capped",
             "  y = 30 * tanh(gemm(x[M, K]:bf16, w[N, K]:bf16) / 30)\n"
             "  store(y:bf16, y)\n  row_partial(p, max(y))")},
      {write("magnitudes", product + "  row_partial(p, abs_max(y))"),
       write("scales", "  store(scale, max(combine_rows(abs_max(p[M, N])) / 448, 1e-12))"),
       write("quantised", "  store(q:bf16, tile(y[M, N]:bf16) / per_row(scale[M]))")},
      {write("soft_maxima", product + "  row_partial(p, max(y))"),
       write("soft_finish", "  store(m, combine_rows(max(p[M, N])))"),
       write("soft_powers",
             "  e = exp(tile(y[M, N]:bf16) - per_row(m[M]))\n"
             "  store(e:bf16, e)\n  row_partial(s, sum(e))"),
       write("soft_sums", "  store(r, 1 / combine_rows(sum(s[M, N])))"),
       write("softmax", "  store(softmax, tile(e[M, N]:bf16) * per_row(r[M]))")},
      {write("raised", product + "  abs_max_into(largest, y)")},
      {write("log_sums", product + "  row_partial(p, log_sum_exp(y))"),
       write("results",
             "  store(largest, combine_rows(log_sum_exp(p[M, N]), max))\n"
             "  store(rest, combine_rows(log_sum_exp(p), log_sum))")},
  };
  for (const Words& files : examples) {
    SCOPED_TRACE(files.front());
    const TestFolder backward;
    const CommandResult derived = run_coda(Words{"derive", "--out", backward / "b"} + files);
    ASSERT_EQ(derived.status, 0) << derived.err;
    Words check{"check", "--backend", "cpu", "--brief", "--configurations", "2"};
    for (const std::string& file : files) check = check + Words{"--backward-of", file};
    for (const std::string& file : files_of(backward / "b")) check.push_back(file);
    const CommandResult checked = run_coda(check);
    EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
    EXPECT_THAT(checked.out, HasSubstr("as finite differences have it: "));
    EXPECT_THAT(checked.out, AllOf(HasSubstr("grad_to_w"), HasSubstr("grad_to_x")));
  }
}

// Of those that are not asked for there is no program, and no upstream gradient that only they
// need.
TEST(Derive, MakesTheGradientsThatAreWanted) {
  TestFolder folder;
  const std::string file = folder.write("mine.coda",
                                        "program mine {\n"
                                        "  y = gemm(x[M, K], w[N, K])\n"
                                        "  store(y, y)\n"
                                        "  store(z, tile(b[M, N]) * 2)\n"
                                        "}\n");
  const CommandResult result = run_coda({"derive", file, "--gradients", "x"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("store(grad_to_x"), Not(HasSubstr("grad_to_w")),
                                HasSubstr("no program reads grad_of_z: what it is the gradient of "
                                          "does not lead to the inputs of --gradients")));
  const CommandResult wrong = run_coda({"derive", file, "--gradients", "x,v"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.err, HasSubstr("no gradient flows to 'v'; those of b, w, x can be derived"));
}

TEST(Derive, SaysOfWhichStoredValuesNoGradientComes) {
  TestFolder folder;
  const std::string file = folder.write("mine.coda",
                                        "program mine {\n"
                                        "  x = tile(x[M, N])\n"
                                        "  store(mask, less(x, 0))\n"
                                        "  store(y, x * 2)\n"
                                        "  row_partial(p, log_sum_exp(x))\n"
                                        "}\n");
  const CommandResult result = run_coda({"derive", file});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("no program reads grad_of_mask"),
                                HasSubstr("the gradients grad_of_p, grad_of_y\n")));
}

TEST(Derive, RefusesWhatHasNoGradient) {
  TestFolder folder;
  const std::string file = folder.write("mine.coda",
                                        "program mine {\n"
                                        "  store(s, abs_max_group(tile(x[M, 2*N]), 2))\n"
                                        "}\n");
  const CommandResult result = run_coda({"derive", file});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("abs_max_group has no operation of a graph"));
  const CommandResult other =
      run_coda({"derive", kPrograms + "residual_norm.coda", "--sizes", "Q=4"});
  EXPECT_NE(other.status, 0);
  EXPECT_THAT(other.err, HasSubstr("Q is no size"));
}

// `coda derive` prints one file of programs, which `coda check` and `coda fmt` read.
TEST(Derive, WhatIsPrintedIsAFileThatIsChecked) {
  const TestFolder folder;
  const std::string file = folder.write("f.coda", R"(program gate {
  z = gemm(x[M, K], w[N, K])
  store(a, silu(z) * tile(u[M, N]))
}
program norm {
  h = tile(a[M, N]) * per_column(g[N])
  store(h, h)
  row_partial(squares, sum(h * h))
})");
  const CommandResult derived = run_coda({"derive", file});
  ASSERT_EQ(derived.status, 0) << derived.err;
  const std::string back = folder.write("b.coda", derived.out);
  EXPECT_GT(names_in(derived.out).size(), 2U);
  const CommandResult checked = run_coda({"check", back, "--backend", "cpu", "--no-backward",
                                          "--sizes", "M=70,N=66,K=9", "--configurations", "1"});
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
  const CommandResult against =
      run_coda({"check", back, "--backend", "cpu", "--brief", "--no-backward", "--sizes",
                "M=7,N=9,K=5", "--configurations", "1", "--backward-of", file});
  EXPECT_EQ(against.status, 0) << against.out << against.err;
  EXPECT_THAT(against.out, HasSubstr("as finite differences have it: grad_to_g, grad_to_u, "
                                     "grad_to_w, grad_to_x"));
  const CommandResult formatted = run_coda({"fmt", "--check", back});
  EXPECT_EQ(formatted.status, 0) << formatted.err;
}

// The program that replaces the forward keeps the forward's 8-bit store and its abs_max_into.
TEST(Derive, StoresIn8BitsKeepTheirTypeAndTheirMagnitude) {
  const TestFolder folder;
  const std::string file = folder.write("f.coda", R"(program quantised {
  a = silu(gemm(x[M, K]:bf16, w[N, K]:bf16))
  store(q:e4m3, a * scalar(s))
  abs_max_into(largest, a)
})");
  const CommandResult derived = run_coda({"derive", file});
  ASSERT_EQ(derived.status, 0) << derived.err;
  EXPECT_THAT(derived.out,
              AllOf(HasSubstr("take the place of the forward"), HasSubstr("store(q:e4m3, "),
                    HasSubstr("abs_max_into(largest, "), HasSubstr("which has no gradient"),
                    Not(HasSubstr("grad_of_largest")), Not(HasSubstr("largest.of"))));
  const std::string back = folder.write("b.coda", derived.out);
  const CommandResult against =
      run_coda({"check", back, "--backend", "cpu", "--brief", "--no-backward", "--sizes",
                "M=7,N=9,K=5", "--configurations", "1", "--formula",
                "a = silu(x @ w.T); q = a * s; largest = maximum(largest, abs(a).max())",
                "--backward-of", file});
  EXPECT_EQ(against.status, 0) << against.out << against.err;
  EXPECT_THAT(against.out, HasSubstr("as finite differences have it: grad_to_s"));
}

// The backward recomputes what is cheap to compute from a stored value, so the given program stays
// the forward.
TEST(Derive, WhatIsCheapIsNotStored) {
  const TestFolder folder;
  const std::string file = folder.write("f.coda", R"(program gate {
  z = gemm(x[M, K]:bf16, w[N, K]:bf16)
  store(z:bf16, z)
  store(a:bf16, sigmoid(z) * tile(u[M, N]:bf16))
})");
  const CommandResult gate = run_coda({"derive", file});
  ASSERT_EQ(gate.status, 0) << gate.err;
  EXPECT_THAT(gate.out, AllOf(HasSubstr("sigmoid(tile(z[M, N]:bf16))"),
                              Not(HasSubstr("take the place of the forward"))));
  const std::string loss = folder.write("l.coda", R"(program head {
  z = gemm(h[M, K], w[V, K])
  store(z:bf16, z)
  l = 30 * tanh(z / 30)
  store(chosen, select_column(l, per_row(target[M]:i32)))
  row_partial(sums, log_sum_exp(l))
}
program loss {
  lse = combine_rows(log_sum_exp(sums[M, V]), log_sum_exp)
  store(loss, lse - per_row(chosen[M]))
})");
  const CommandResult capped = run_coda({"derive", loss});
  ASSERT_EQ(capped.status, 0) << capped.err;
  EXPECT_THAT(capped.out, AllOf(HasSubstr("z = tile(z[M, V]:bf16)"), HasSubstr("tanh(z * "),
                                Not(HasSubstr("store(h_product_act, h_product_act)"))));
}

TEST(Derive, AStoredValuesGradientCanBeAskedFor) {
  const TestFolder folder;
  const std::string file = folder.write("f.coda", R"(program gate {
  z = gemm(x[M, K]:bf16, w[N, K]:bf16)
  store(z:bf16, z)
  store(a:bf16, silu(z))
})");
  const CommandResult derived = run_coda({"derive", file, "--gradients", "z"});
  ASSERT_EQ(derived.status, 0) << derived.err;
  EXPECT_THAT(derived.out, AllOf(HasSubstr("store(grad_to_z"), HasSubstr("tile(z[M, N]:bf16)"),
                                 Not(HasSubstr("gemm"))));
  const std::string back = folder.write("b.coda", derived.out);
  const CommandResult sized = run_coda(
      {"check", back, "--backend", "cpu", "--brief", "--no-backward", "--backward-of", file});
  EXPECT_EQ(sized.status, 0) << sized.out << sized.err;
  EXPECT_THAT(sized.out, HasSubstr("as finite differences have it: grad_to_z"));
  EXPECT_THAT(run_coda({"derive", file, "--gradients", "z,x"}).err,
              HasSubstr("--gradients: z is made from x: derive the gradient of one at a time"));
  EXPECT_THAT(run_coda({"derive", file, "--gradients", "y"}).err,
              HasSubstr("no gradient flows to 'y'"));
}

}  // namespace
}  // namespace derive_command
}  // namespace coda
