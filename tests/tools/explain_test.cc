// SPDX-License-Identifier: Apache-2.0
// What `coda explain` and `coda info` show: programs that parse, sums that are those of their
// steps, and that fusion moves fewer bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/expect_one_line.h"
#include "tools/run_command.h"

namespace coda {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const Words kModel{"explain", "--hidden", "64", "--heads", "4", "--sequence", "64", "--batch", "2"};

json explained(const Words& command) {
  const CommandResult result = run_coda(command + Words{"--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  return json::parse(result.out);
}

TEST(Explain, SumsAreThoseOfTheSteps) {
  for (const char* model : {"llama", "gpt2"}) {
    const json plan = explained(kModel + Words{"--model", model, "--measure"});
    for (const char* kind : {"fused", "unfused"}) {
      for (const char* quantity : {"bytes", "flops", "predicted_seconds", "measured_seconds"}) {
        double sum = 0;
        for (const json& step : plan[kind]["steps"]) sum += step[quantity].get<double>();
        EXPECT_NEAR(sum, plan[kind][quantity].get<double>(), 1e-9 * sum) << kind << quantity;
        EXPECT_GT(sum, 0) << kind << quantity;
      }
    }
    EXPECT_EQ(plan["fused"]["flops"], plan["unfused"]["flops"]);
    EXPECT_LT(plan["fused"]["bytes"], plan["unfused"]["bytes"]);
    EXPECT_LT(plan["fused"]["steps"].size(), plan["unfused"]["steps"].size());
    int chosen = 0;
    for (const json& choice : plan["alternatives"]) chosen += choice["chosen"].get<bool>() ? 1 : 0;
    EXPECT_EQ(chosen, 1);
  }
}

// What is saved lessens from one choice to the next, and so does what a step takes; on a GPU that
// is not there, too.
TEST(Explain, RecomputationIsShownWithTheMemoryOfAStep) {
  for (const Words& gpu : {Words{}, Words{"--gpu", "h200"}, Words{"--gpu", "rtx4090"}}) {
    std::vector<int64_t> saved;
    std::vector<int64_t> taken;
    for (const char* recompute : {"none", "norms", "layer:3", "layer"}) {
      const json plan =
          explained(Words{"explain", "--hidden", "64", "--batch", "8", "--sequence", "128",
                          "--dtype", "bf16", "--layers", "6", "--recompute", recompute} +
                    gpu);
      const json& memory = plan["memory"];
      int64_t sum = 0;
      for (const json& bytes : memory["uses"]) sum += bytes.get<int64_t>();
      EXPECT_EQ(sum, memory["bytes"]);
      EXPECT_GT(memory["uses"]["optimizer's state"], 0);
      saved.push_back(memory["uses"]["saved for the backward"]);
      taken.push_back(sum);
    }
    EXPECT_LE(saved[1], saved[0]);
    EXPECT_LE(taken[1], taken[0]);
    EXPECT_LT(saved[2], saved[1]);
    EXPECT_LT(taken[2], taken[1]);
    EXPECT_LT(saved[3], saved[1] / 2);
    EXPECT_LT(taken[3], taken[2]);
  }
  const CommandResult text = run_coda(kModel + Words{"--recompute", "layer"});
  EXPECT_THAT(text.out, HasSubstr("layers recomputed"));
  EXPECT_THAT(text.out, HasSubstr("memory of a training step: "));
  EXPECT_THAT(text.out, HasSubstr("no equal consecutive layers"));  // of one layer
  for (const char* wrong : {"layer:0", "layer:2x", "layers"}) {
    const CommandResult refused = run_coda(kModel + Words{"--recompute", wrong});
    EXPECT_EQ(refused.status, 2) << wrong;
    EXPECT_THAT(refused.err, HasSubstr("none, norms, layer or layer:N, not '"));
  }
}

// Bytes of a parameter on a GPU: 4 for a master weight, 8 or 4 for the moments. On a CPU all is
// fp32.
TEST(Explain, TheOptimizersSettingsAreInTheMemoryOfAStep) {
  const auto use = [](const char* what, const Words& more) {
    const json plan = explained(Words{"explain", "--hidden", "256", "--dtype", "bf16"} + more);
    const json& uses = plan["memory"]["uses"];
    return uses.contains(what) ? uses[what].get<int64_t>() : 0;
  };
  const Words gpu{"--gpu", "rtx4090"};
  const char* const state = "optimizer's state";
  const int64_t full = use(state, gpu);
  EXPECT_EQ(use(state, gpu + Words{"--moments", "bf16"}), full / 2);
  EXPECT_EQ(use(state, gpu + Words{"--moments-on-host"}), 0);
  const int64_t fewer =
      use("weights", gpu) - use("weights", gpu + Words{"--master-weights", "bf16"});
  EXPECT_NEAR(static_cast<double>(fewer), static_cast<double>(full) / 2,
              0.1 * static_cast<double>(full));
  EXPECT_EQ(use(state, {"--moments", "bf16", "--moments-on-host"}), use(state, {}));
  const CommandResult refused = run_coda(kModel + Words{"--master-weights", "bf16"});
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("add --dtype bf16"));
}

// With one pass, gradients share memory with what is saved.
TEST(Explain, SeveralPassesOfAStepHaveGradientsOfTheirOwn) {
  const auto use = [](const char* what, const Words& more) {
    const Words model{"explain", "--layers", "8", "--gpu", "rtx4090"};
    return explained(model + more)["memory"]["uses"][what].get<int64_t>();
  };
  EXPECT_LT(use("gradients", {}), use("gradients", {"--accumulate", "2"}));
  EXPECT_EQ(use("gradients", {"--accumulate", "3"}), use("gradients", {"--accumulate", "2"}));
  EXPECT_EQ(use("weights", {}), use("weights", {"--accumulate", "2"}));
}

// On a GPU, and with recomputed layers.
TEST(Explain, InputsOfLayersOnTheHostAreNamedAndNotSaved) {
  const Words model{"explain", "--hidden", "64", "--layers", "6", "--recompute", "layer"};
  const Words gpu{"--gpu", "rtx4090"}, on_host{"--layers-on-host"};
  const char* const saved = "saved for the backward";
  const auto saved_bytes = [&](const Words& more) {
    return explained(model + more)["memory"]["uses"][saved].get<int64_t>();
  };
  // Four of 2048 rows of 64 fp32 numbers.
  EXPECT_EQ(saved_bytes(gpu) - saved_bytes(gpu + on_host), 4 * 2048 * 64 * 4);
  EXPECT_EQ(saved_bytes(on_host), saved_bytes({}));
  const CommandResult text = run_coda(model + gpu + on_host);
  EXPECT_THAT(text.out, HasSubstr("and of the host's memory 2.1 MB (inputs of layers 2.1 MB)"));
  EXPECT_THAT(text.out, HasSubstr("    copy model.layers.0.mlp.down_proj_residual to the host"));
  EXPECT_THAT(text.out, HasSubstr("_residual.fetched from the host, complete before "));
  expect_one_line(run_coda(Words{"explain", "--layers", "6"} + gpu + on_host), 1,
                  {"only if the layers are recomputed"});
}

// A card that is not there: its predictions are marked, and a wrong name is refused.
TEST(Explain, ACardIsNamedAndItsTimesAreMarkedAsPredicted) {
  const CommandResult text = run_coda(kModel + Words{"--dtype", "bf16", "--gpu", "RTX4090"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("bf16, for RTX 4090, "));
  EXPECT_THAT(text.out, HasSubstr("times are predicted for the RTX 4090 from its data sheet, not "
                                  "measured"));
  const json ada = explained(kModel + Words{"--dtype", "bf16", "--gpu", "rtx4090"});
  const json hopper = explained(kModel + Words{"--dtype", "bf16", "--gpu", "h200"});
  EXPECT_THAT(ada["prediction"], HasSubstr("not measured"));
  EXPECT_GT(ada["fused"]["predicted_seconds"], hopper["fused"]["predicted_seconds"]);
  const CommandResult wrong = run_coda(kModel + Words{"--gpu", "rtx4900"});
  EXPECT_NE(wrong.status, 0);
  EXPECT_THAT(wrong.err, HasSubstr("no GPU named 'rtx4900' is known; the nearest names are "));
}

// Of two layers the first one's products stay in bf16, and the notes say so.
TEST(Explain, WeightsMayBeKeptOutOfEightBits) {
  const Words model{"explain", "--hidden", "64",    "--heads",    "2",   "--layers",
                    "2",       "--batch",  "8",     "--sequence", "128", "--dtype",
                    "fp8",     "--brief",  "--gpu", "h200"};
  const CommandResult some =
      run_coda(model + Words{"--fp8-except", "model.layers.0.*,model.embed*"});
  EXPECT_EQ(some.status, 0) << some.err;
  EXPECT_THAT(some.out, HasSubstr("15 of parameters that are excepted"));
  EXPECT_THAT(run_coda(model).out, Not(HasSubstr("excepted")));
  EXPECT_THAT(run_coda(model + Words{"--fp8-except", "model.layers.2.*"}).err,
              HasSubstr("no parameter has such a name"));
}

// 128 tokens in blocks of 64: the same products, the weight read twice, a block's memory.
TEST(Explain, BlocksOfTheLogitsAreShownWithWhatTheySave) {
  const json whole = explained(kModel + Words{"--loss-rows", "0"})["fused"];
  const json blocks = explained(kModel + Words{"--loss-rows", "64"})["fused"];
  EXPECT_TRUE(whole["loops"].empty());
  ASSERT_EQ(blocks["loops"].size(), 1U);
  const json& loop = blocks["loops"][0];
  EXPECT_EQ(loop["rows"], 64);
  EXPECT_EQ(loop["blocks"], 2);
  EXPECT_EQ(2 * loop["bytes"].get<int64_t>(), loop["bytes_without_blocks"].get<int64_t>());
  EXPECT_EQ(blocks["flops"], whole["flops"]);
  int in_blocks_of_rows = 0;
  for (const json& step : blocks["steps"]) in_blocks_of_rows += step.contains("loop") ? 1 : 0;
  EXPECT_GE(in_blocks_of_rows, 5);
  const CommandResult text = run_coda(kModel + Words{"--loss-rows", "64"});
  EXPECT_THAT(text.out, HasSubstr("for blocks of 64 rows of M (2), in "));
  EXPECT_THAT(text.out, HasSubstr("in later blocks"));
  const CommandResult small = run_coda(kModel);
  EXPECT_THAT(small.out, HasSubstr("not in blocks of rows: [M, 256] takes 0.1 MB"));
}

TEST(Explain, ForAPersonItShowsEachProgramAndBothTotals) {
  const CommandResult result = run_coda(kModel);
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* part :
       {"self_attn.q_proj.weight", "= gemm(", "store(", "fused", "unfused", "forward", "backward",
        "plans compared", "latest operand", "why: ", "A letter for each norm"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST(Explain, ProgramsInFilesAreLiftedDifferentiatedAndPlanned) {
  const std::string examples = std::string(CODA_SOURCE_DIR) + "/programs/";
  const Words files{"explain", examples + "swiglu.coda", examples + "residual_norm.coda"};
  const Words sizes{"--sizes", "M=128,N=64,K=96"};
  const json forward = explained(files + sizes + Words{"--task", "eval"});
  const json both = explained(files + sizes);
  EXPECT_EQ(forward["fused"]["steps"].size(), 3U);  // the third combines the partials of squares
  EXPECT_EQ(both["fused"]["flops"].get<double>(), 3 * forward["fused"]["flops"].get<double>());
  const CommandResult unsized = run_coda(files);
  EXPECT_EQ(unsized.status, 1);
  EXPECT_THAT(unsized.err, HasSubstr("--sizes"));
  const CommandResult other = run_coda(files + Words{"--sizes", "M=128,N=64,K=96,D=3"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("D is no size of the programs, they have K, M, N"));
  const CommandResult twice = run_coda(files + Words{"--sizes", "M=128,N=64,K=96,M=3"});
  EXPECT_EQ(twice.status, 2);  // a wrong command line, whatever the programs are
  EXPECT_THAT(twice.err, HasSubstr("M is given twice"));
  const TestFolder folder;
  const CommandResult broken =
      run_coda({"explain", folder.write("bad.coda", "program p {\n  store(x\n}\n")});
  EXPECT_EQ(broken.status, 1);
  EXPECT_THAT(broken.err, HasSubstr("bad.coda"));
  EXPECT_THAT(broken.err, HasSubstr("bad.coda:2:10: error: "));
}

// Programs that once ended in internal errors, with gradients and without.
TEST(Explain, EveryProgramHasAPlan) {
  std::string twenty = "x";
  for (int i = 1; i < 20; ++i) twenty += " + x";
  const std::pair<const char*, std::string> programs[] = {
      {"a gradient added in place",
       "  acc = gemm(x[K, M], y[K, N], tn)\n  store(dw, tile(dw[M, N]) + acc)\n"},
      {"a table repeated and used twice", "  a = tile(c[M, 32], repeat=2)\n  store(o, a + a)\n"},
      {"twenty equal terms", "  x = tile(x[M, N])\n  store(o, " + twenty + ")\n"},
      {"a copy", "  store(o, tile(x[M, N]))\n"},
      {"pairs in groups of 128 with tables",
       "  q = gemm(x[M, 64], w[384, 64])\n  a, b = split_pairs(q, 128)\n"
       "  c = tile(cos[M, 64], repeat=3)\n  s = tile(sin[M, 64], repeat=3)\n"
       "  store(q_first, a * c - b * s)\n  store(q_second, b * c + a * s)\n"},
  };
  const TestFolder folder;
  for (const auto& [what, steps] : programs) {
    const std::string file = folder.write("p.coda", "program p {\n" + steps + "}\n");
    for (const char* task : {"train", "eval"}) {
      Words command{"explain", file, "--task", task, "--sizes"};
      std::string sizes;
      for (const char* size : {"M", "N", "K"}) {
        if (steps.find("[" + std::string(size)) != std::string::npos ||
            steps.find(std::string(size) + "]") != std::string::npos)
          sizes += (sizes.empty() ? "" : ",") + std::string(size) + "=48";
      }
      const CommandResult result = run_coda(command + Words{sizes});
      EXPECT_EQ(result.status, 0) << what << ", " << task << ": " << result.err;
      EXPECT_THAT(result.out, HasSubstr("store(")) << what << ", " << task;
    }
  }
}

// As small as a model can be.
TEST(Explain, TheSmallestModelsHavePlans) {
  const Words sequence{"explain", "--sequence", "4", "--batch", "1"};
  for (const Words& model :
       {Words{"--vocab", "1", "--hidden", "8", "--heads", "2"},
        Words{"--vocab", "1", "--hidden", "8", "--heads", "2", "--model", "gpt2"},
        Words{"--hidden", "1", "--heads", "1", "--mlp", "1", "--model", "gpt2"},
        Words{"--hidden", "2", "--heads", "1", "--mlp", "1"},
        Words{"--hidden", "2", "--heads", "1", "--mlp", "1", "--untied", "--vocab", "1"}}) {
    for (const char* task : {"train", "eval"}) {
      const CommandResult result = run_coda(sequence + model + Words{"--task", task});
      EXPECT_EQ(result.status, 0) << testing::PrintToString(model) << result.err;
    }
  }
}

// A message is for who wrote the program: no path of the sources.
TEST(Explain, AMessageShowsNoPathOfTheSources) {
  const TestFolder folder;
  const std::string file = folder.write(
      "bad.coda", "program p {\n  store(a, tile(x[M, N]))\n  store(b, tile(y[M, N]))\n}\n");
  const std::string other = folder.write(
      "other.coda", "program q {\n  store(c, gemm(a[M, N], w[K, N]) + tile(b[M, K]))\n}\n");
  const CommandResult result =
      run_coda({"explain", file, other, "--sizes", "M=4,N=4,K=4", "--task", "eval"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, testing::Not(HasSubstr("src/"))) << result.err;
  EXPECT_THAT(result.err, testing::Not(HasSubstr(".cc:"))) << result.err;
}

TEST(Info, NamesTheVersionTheProcessorAndTheBackends) {
  const CommandResult result = run_coda({"info", "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  const json info = json::parse(result.out);
  for (const char* key : {"version", "processor", "vector extensions", "backends", "cpu products",
                          "cpu libraries", "compiler", "gpu", "nvrtc"}) {
    EXPECT_TRUE(info[key].is_string() && !info[key].get<std::string>().empty()) << key;
  }
  EXPECT_GE(info["cores"], 1);
  EXPECT_EQ(info["threads"], 1) << "as OMP_NUM_THREADS says";
}

TEST(Help, IsThereForEveryCommand) {
  EXPECT_EQ(run_coda({"--help"}).status, 0);
  for (const char* command : {"train", "eval", "sample", "explain", "info"}) {
    const CommandResult result = run_coda({command, "--help"});
    EXPECT_EQ(result.status, 0) << command;
    EXPECT_THAT(result.out, HasSubstr("Usage: coda " + std::string(command)));
    EXPECT_THAT(result.out, HasSubstr("Exit status"));
    EXPECT_THAT(result.out, HasSubstr("OMP_NUM_THREADS"));
    // Each flag is said to do something: its name is followed by words.
    std::istringstream lines(result.out);
    std::string line;
    while (std::getline(lines, line)) {
      if (!line.starts_with("  -")) continue;
      std::string next;
      if (line.size() <= 28) std::getline(lines, next);
      const std::string words = line.size() > 28 ? line.substr(28) : next;
      EXPECT_NE(words.find_first_not_of(' '), std::string::npos) << command << ": " << line;
    }
  }
  EXPECT_EQ(run_coda({"--version"}).status, 0);
  EXPECT_THAT(run_coda({"--version"}).out, testing::StartsWith("coda "));
}

}  // namespace
}  // namespace coda
