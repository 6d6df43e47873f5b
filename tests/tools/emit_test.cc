// SPDX-License-Identifier: Apache-2.0
// `coda emit`: the CUDA text of programs in files and of a model's plan, each text once; the tiles
// that a product can be made with; what cannot be done says why. No GPU, no compiler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tools/run_command.h"

namespace coda {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

constexpr const char* kProduct = R"(program product {
  store(y:bf16, gemm(x[M, K]:bf16, w[N, K]:bf16))
})";

TEST(Emit, AFileIsOneKernelThatBeginsWithItsProgram) {
  const TestFolder folder;
  const CommandResult result =
      run_coda({"emit", folder.write("product.coda", kProduct), "--sizes", "M=4096,N=4096,K=4096"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(lines_of(result.out).front(),
              AllOf(StartsWith("// product: "), ContainsRegex("[0-9]+ CTAs of 384 threads"),
                    HasSubstr("bytes of shared memory")));
  EXPECT_THAT(result.out, HasSubstr("// program product {"));
  EXPECT_THAT(result.out, HasSubstr("#include \"device/"));
  EXPECT_EQ(count(result.out, "extern \"C\""), 1U);
}

// In fp32 a product is made by a plain kernel.
TEST(Emit, MatricesInFp32MayBeStoredIn16Bits) {
  const TestFolder folder;
  const std::string file = folder.write(
      "p.coda", "program p {\n  store(y, gemm(h[M, K], w[N, K]) * per_row(r[M]))\n}\n");
  const std::vector<std::string> words{"emit", file, "--sizes", "M=512,N=256,K=384"};
  const CommandResult plain = run_coda(words);
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_THAT(plain.out + plain.err, HasSubstr("product operand 'h' is f32"));
  EXPECT_THAT(plain.out, HasSubstr("add_plain_product<Element::f32"));
  std::vector<std::string> stored = words;
  stored.insert(stored.end(), {"--storage", "bf16"});
  const CommandResult result = run_coda(stored);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("gemm(h[M, K]:bf16"));
}

// The text does not depend on sizes: the second file gives the same, and is left out.
TEST(Emit, EachTextIsPrintedOnce) {
  const TestFolder folder;
  const std::string file = folder.write("product.coda", kProduct);
  const std::string again = folder.write("again.coda", kProduct);
  const CommandResult one = run_coda({"emit", file, "--sizes", "M=4096,N=4096,K=4096"});
  const CommandResult two = run_coda({"emit", file, again, "--sizes", "M=4096,N=4096,K=4096"});
  EXPECT_EQ(two.status, 0) << two.err;
  EXPECT_EQ(two.out, one.out);
}

TEST(Emit, AModelsKernelsAreThoseOfItsForwardAndBackward) {
  const CommandResult result =
      run_coda({"emit", "--layers", "2", "--hidden", "512", "--heads", "4", "--head-size", "128",
                "--mlp", "1024", "--vocab", "2048", "--sequence", "512"});
  EXPECT_EQ(result.status, 0) << result.err;
  const size_t kernels = count(result.out, "extern \"C\"");
  EXPECT_GE(kernels, 15U);
  EXPECT_LE(kernels, 80U);  // two layers share theirs
  EXPECT_THAT(result.out, HasSubstr("log_sum_exp"));
  // Each text is there once.
  std::set<std::string> texts;
  std::string text;
  for (const std::string& line : lines_of(result.out)) {
    if (line.find(" CTAs of ") != std::string::npos) {
      EXPECT_TRUE(text.empty() || texts.insert(text).second) << line;
      text.clear();
    } else {
      text += line + "\n";
    }
  }
}

TEST(Emit, ChoicesAreTheOneThatIsTakenAndThenAllOfThem) {
  const TestFolder folder;
  const CommandResult result = run_coda({"emit", folder.write("product.coda", kProduct),
                                         "--choices", "--sizes", "M=16384,N=4096,K=4096"});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string choice =
      "[0-9]+x[0-9]+ (ping-pong|cooperative), cluster [12]x[12], [0-9] stages";
  std::set<std::string> listed;
  std::string taken;
  for (const std::string& line : lines_of(result.out)) {
    if (line.starts_with("product: ")) {
      EXPECT_THAT(line, ContainsRegex("^product: " + choice + ", from [a-z ]+"));
      EXPECT_EQ(taken, "");
      taken = line.substr(9, line.find(", from ") - 9);
    } else if (!line.starts_with("  class ")) {
      EXPECT_THAT(line, ContainsRegex("^  " + choice + "$"));
      EXPECT_TRUE(listed.insert(line.substr(2)).second) << line;
    }
  }
  EXPECT_GE(listed.size(), 20U);
  EXPECT_TRUE(listed.contains(taken)) << taken;
  EXPECT_THAT(result.out, Not(HasSubstr("extern")));
}

TEST(Emit, WhatCannotBeDoneSaysWhy) {
  const TestFolder folder;
  const std::string product = folder.write("product.coda", kProduct);
  const auto error_of = [](const std::vector<std::string>& arguments) {
    const CommandResult result = run_coda(arguments);
    EXPECT_NE(result.status, 0);
    EXPECT_LE(lines_of(result.err).size(), 2U) << result.err;
    return result.err;
  };
  EXPECT_THAT(error_of({"emit", folder / "nothing.coda"}), HasSubstr("nothing.coda"));
  EXPECT_THAT(error_of({"emit", product, "--sizes", "M=16,K=16"}),
              HasSubstr("the size N of program 'product' is not known: give it, as in --sizes N="));
  EXPECT_THAT(error_of({"emit", product, "--sizes", "M=16,N=16,K=16,Q=2"}),
              HasSubstr("Q is no size of the programs, they have K, M, N: check the name"));
  EXPECT_THAT(error_of({"emit", product, "--sizes", "M=0,N=16,K=16"}),
              HasSubstr("'M=0' is no size"));
  EXPECT_THAT(error_of({"emit", product, "--sizes", "M"}), HasSubstr("'M' is no size"));
  EXPECT_THAT(error_of({"emit", "--storage", "bf16"}), HasSubstr("--storage is of program files"));
  EXPECT_THAT(error_of({"emit", "--sizes", "M=16"}),
              HasSubstr("--sizes are those of program files"));
}

// Tensor cores multiply 16 bits; everything else is made by a plain kernel.
TEST(Emit, AProductInFp64IsAPlainKernel) {
  const TestFolder folder;
  const std::string program = folder.write("double.coda", R"(program double {
  store(y, gemm(x[M, K]:f64, w[N, K]:f64))
})");
  const CommandResult result = run_coda({"emit", program, "--sizes", "M=64,N=64,K=64"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("device/kernels/plain_product.cuh"));
}

}  // namespace
}  // namespace coda
