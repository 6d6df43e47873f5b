// SPDX-License-Identifier: Apache-2.0
// `coda bench` on the CPU: what is measured stands beside its products alone, each figure with its
// spread; and what is asked for wrongly is one clear line. (No figure is judged.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/run_command.h"

namespace coda {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::string kLibrary = std::string(CODA_SOURCE_DIR) + "/programs/";

json measured(Words command) {
  command.insert(command.end(), {"--backend", "cpu", "--rounds", "3", "--json"});
  const CommandResult result = run_coda(command);
  EXPECT_EQ(result.status, 0) << result.err;
  return json::parse(result.out);
}

void expect_figures(const json& result, const std::vector<std::string>& names) {
  ASSERT_EQ(result["candidates"].size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const json& one = result["candidates"][i];
    EXPECT_EQ(one["candidate"], names[i]);
    EXPECT_GT(one["interleaved_low_ms"], 0);
    EXPECT_LE(one["interleaved_low_ms"], one["interleaved_ms"]);
    EXPECT_LE(one["interleaved_ms"], one["interleaved_high_ms"]);
    EXPECT_FALSE(one.contains("sustained_mhz"));
  }
  EXPECT_EQ(result["candidates"][0]["ratio"], 1);
  EXPECT_THAT(result["device"], HasSubstr("thread"));
}

TEST(Bench, AProgramStandsBesideItsProductAlone) {
  const json result =
      measured({"bench", kLibrary + "residual_norm.coda", "--sizes", "M=64,N=96,K=96"});
  expect_figures(result,
                 {"products alone", "program", "operations one by one", "copy of as many bytes"});
  EXPECT_EQ(result["flops"], 2.0 * 64 * 96 * 96);
  EXPECT_EQ(result["sizes"]["N"], 96);
}

TEST(Bench, AProgramStandsBesideItsProductOnlyIfAskedFor) {
  expect_figures(measured({"bench", "program", kLibrary + "residual_norm.coda", "--sizes",
                           "M=64,N=96,K=96", "--alone"}),
                 {"products alone", "program"});
}

TEST(Bench, AProgramWithoutAProductHasNone) {
  const json result =
      measured({"bench", "program", kLibrary + "rms_statistic.coda", "--sizes", "M=64,N=96"});
  expect_figures(result, {"program", "copy of as many bytes"});
  EXPECT_FALSE(result.contains("flops"));
  EXPECT_GT(result["bytes"], 0);
}

TEST(Bench, ABlockStandsBesideItsProductsAloneAndUnfused) {
  for (const char* phase : {"forward", "both"}) {
    const json result = measured({"bench", "block", "--tokens", "64", "--hidden", "64", "--mlp",
                                  "96", "--heads", "2", "--kv-heads", "1", "--phase", phase});
    expect_figures(result, {"products alone", "fused", "unfused"});
    // Out, gate, up, down, q; k and v of one head of two. Backward twice that.
    const double weights = 64.0 * (64 + 3 * 96 + 64 + 2 * 32);
    EXPECT_EQ(result["flops"], (result["phase"] == "forward" ? 2 : 6) * 64 * weights);
    EXPECT_EQ(result["tokens"], 64);
    EXPECT_GT(result["peak_bytes"], result["session_bytes"]);
  }
}

// With the same work, and copies of operands in 8 bits that a block in bf16 does not have.
TEST(Bench, ABlockMayHaveItsProductsInEightBits) {
  const auto block = [](const char* dtype) {
    return measured({"bench", "block", "--tokens", "128", "--hidden", "128", "--mlp", "192",
                     "--heads", "2", "--dtype", dtype});
  };
  const json in_bf16 = block("bf16");
  for (const char* recipe : {"fp8", "fp8-kept"}) {
    const json result = block(recipe);
    expect_figures(result, {"products alone", "fused", "unfused"});
    EXPECT_EQ(result["dtype"], recipe);
    EXPECT_GT(result["session_bytes"], in_bf16["session_bytes"]);
    EXPECT_EQ(result["flops"], 6.0 * 128 * 128 * (4 * 128 + 3 * 192));
  }
}

// For a card that is not there nothing is measured, and all times are called predicted.
TEST(Bench, ACardsTimesArePredicted) {
  const Words block{"bench", "block", "--hidden", "1024"};
  const auto predicted = [&](const char* gpu) {
    const CommandResult result = run_coda(block + Words{"--gpu", gpu, "--json"});
    EXPECT_EQ(result.status, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const nlohmann::json fast = predicted("rtx5090");
  const nlohmann::json slow = predicted("rtx3060");
  EXPECT_EQ(fast["gpu"], "RTX 5090");
  EXPECT_NE(fast["prediction"].get<std::string>().find("not measured"), std::string::npos);
  EXPECT_LT(4 * fast["predicted_seconds"].get<double>(), slow["predicted_seconds"].get<double>());
  EXPECT_LT(fast["predicted_seconds_of_products"], fast["predicted_seconds"]);
  const CommandResult text = run_coda(block + Words{"--gpu", "rtx5090"});
  EXPECT_NE(text.out.find("predicted for the RTX 5090 from its data sheet, not measured"),
            std::string::npos);
  EXPECT_NE(run_coda(block + Words{"--gpu", "rtx5090", "--backend", "cpu"}).status, 0);
}

TEST(Bench, ForAPersonItIsATable) {
  const CommandResult result =
      run_coda({"bench", "block", "--backend", "cpu", "--tokens", "64", "--hidden", "64", "--mlp",
                "64", "--heads", "1", "--dtype", "fp32", "--rounds", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* part : {"a LLaMA block", "interleaved", "products alone", "fused", "unfused",
                           "ratio", "MB of the plan's own"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("MHz")));  // which is of a GPU
}

struct Refusal {
  const char* name;
  Words command;
  int status;
  const char* message;
};

class BenchRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(BenchRefuses, WithOneLine) {
  const CommandResult result = run_coda(GetParam().command);
  EXPECT_EQ(result.status, GetParam().status);
  EXPECT_THAT(result.err, HasSubstr(GetParam().message));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

INSTANTIATE_TEST_SUITE_P(
    Wrong, BenchRefuses,
    ::testing::Values(
        Refusal{"nothing", {"bench"}, 2, "(see coda bench --help)"},
        Refusal{"program_missing", {"bench", "program"}, 2, "(see coda bench program --help)"},
        Refusal{"sizes_missing",
                {"bench", "program", kLibrary + "residual_norm.coda", "--sizes", "M=64"},
                1,
                "the size K of program 'residual_norm' is not known: give it, as in --sizes K="},
        Refusal{"no_file", {"bench", "program", "/nowhere/p.coda"}, 1, "/nowhere/p.coda"},
        Refusal{"heads",
                {"bench", "block", "--backend", "cpu", "--hidden", "100", "--heads", "3"},
                1,
                "--hidden 100 does not divide into 3 heads"},
        Refusal{"regime", {"bench", "block", "--regimes", "warm"}, 2, "--regimes"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace coda
