// SPDX-License-Identifier: Apache-2.0
// Commands on files of graphs: what is printed is parsed again, computes what the graph says, and
// commands that take programs only say so in one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "coda/array_file.h"
#include "coda/graph_text.h"
#include "ir/evaluate_graph.h"
#include "tools/run_command.h"

namespace coda {
namespace graph_files {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kExample = CODA_SOURCE_DIR "/examples/09_graph/block.coda";

constexpr const char* kMlp = R"(graph mlp {
  x = input(x[M, 24])
  h = x - reduce_rows(sum(x)) * reciprocal_dim(24)
  up = gemm(h, parameter(up[I, 24]))
  y = x + gemm(gelu(up), parameter(down[24, I]))
  store(y, y)
  store(largest, reduce_columns(max(x)))
  store(chosen, select_column(y, table(ids[M, 1]:i32)))
}
)";

TEST(GraphFiles, AreLaidOut) {
  const TestFolder folder;
  const std::string file =
      folder.write("g.coda", "graph g {\n x=input( x[M,2*N] )\nstore(y,x) }\n");
  EXPECT_EQ(run_coda({"fmt", "--check", kExample}).status, 0);
  EXPECT_EQ(run_coda({"fmt", "--check", file}).status, 1);
  EXPECT_EQ(run_coda({"fmt", file}).status, 0);
  EXPECT_EQ(read_bytes(file), "graph g {\n  x = input(x[M, 2*N])\n  store(y, x)\n}\n");
}

TEST(GraphFiles, AreExplainedAsModelsAre) {
  const Words at{"--sizes", "M=128,S=128,I=96"};
  const CommandResult train = run_coda(Words{"explain", kExample} + at);
  EXPECT_EQ(train.status, 0) << train.err;
  EXPECT_THAT(train.out, AllOf(HasSubstr("attention_backward"), HasSubstr("program forward."),
                               HasSubstr("grad_to_wq"), HasSubstr("unfused")));
  // The plan's own matrices are in what products read, unless --dtype says otherwise.
  EXPECT_THAT(train.out, HasSubstr("with gradients, fp32, for a CPU"));
  const TestFolder folder;
  const std::string half = folder.write(
      "half.coda",
      "graph half {\n  store(y, gemm(input(x[M, 8]:bf16), parameter(w[9, 8]:bf16)))\n}\n");
  EXPECT_THAT(run_coda({"explain", half, "--sizes", "M=64"}).out,
              HasSubstr("gradients, bf16, for a CPU"));
  EXPECT_THAT(run_coda({"explain", half, "--sizes", "M=64", "--dtype", "fp32"}).out,
              HasSubstr("gradients, fp32, for a CPU"));
  const CommandResult eval = run_coda(Words{"explain", kExample, "--task", "eval"} + at);
  EXPECT_THAT(eval.out, Not(HasSubstr("grad_to_")));
  const CommandResult without = run_coda({"explain", kExample});
  EXPECT_EQ(without.status, 1);
  EXPECT_THAT(without.err, HasSubstr("the size I is not known: give it, as in --sizes I=1024"));
  const CommandResult other =
      run_coda(Words{"explain", kExample} + Words{"--sizes", "M=128,S=128,I=96,Q=3"});
  EXPECT_THAT(other.err, HasSubstr("Q is no size of the graph, it has I, M, S"));
}

// What `coda run` writes is the graph in float64, of inputs of all kinds.
TEST(GraphFiles, AreRunOnGivenInputs) {
  const TestFolder folder;
  const std::string file = folder.write("mlp.coda", kMlp);
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(0, 0.3);
  std::map<std::string, std::vector<double>> values;
  std::vector<ArrayToWrite> arrays;
  for (const auto& [name, rows, cols] :
       {std::tuple{"x", 37, 24}, {"up", 50, 24}, {"down", 24, 50}, {"ids", 37, 1}}) {
    Array array{{rows, cols}, std::vector<double>(static_cast<size_t>(rows * cols))};
    const bool is_index = name == std::string("ids");
    for (double& v : array.values)
      v = is_index ? static_cast<double>(random() % 24)
                   : static_cast<double>(float(normal(random)));
    values[name] = array.values;
    arrays.push_back({name, is_index ? DType::i32 : DType::f32, array});
  }
  write_arrays(folder / "in.npz", arrays);
  const CommandResult result = run_coda(
      {"run", file, "--in", folder / "in.npz", "--out", folder / "out.npz", "--device", "cpu"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("on the CPU at I=50 M=37"));
  const Arrays out = read_arrays(folder / "out.npz");
  const NamedGraph graph = parse_graph(kMlp);
  ASSERT_EQ(out.size(), graph.outputs.size());
  for (const NamedValue& output : graph.outputs) {
    const Matrix exact =
        evaluate(graph.graph, {output.value.id}, values, {{"M", 37}, {"I", 50}})[0];
    const std::vector<double>& ours = out.at(output.name).values;
    ASSERT_EQ(ours.size(), exact.data.size());
    for (size_t i = 0; i < ours.size(); ++i)
      EXPECT_NEAR(ours[i], exact.data[i], 1e-5) << output.name << " " << i;
  }
  // An index outside of its table, and an input that is missing, are told.
  arrays.pop_back();
  write_arrays(folder / "in.npz", arrays);
  EXPECT_THAT(run_coda({"run", file, "--in", folder / "in.npz", "--out", folder / "out.npz"}).err,
              HasSubstr("the input 'ids' [M] is missing; the graph reads"));
}

TEST(GraphFiles, AreCheckedAgainstFloat64) {
  const CommandResult result = run_coda({"check", kExample, "--backend", "cpu"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("The graph is computed as it is written."),
                                HasSubstr("  cpu: y "), HasSubstr("  plan: y "),
                                HasSubstr("as finite differences have it: grad_to_x, grad_to_norm"),
                                Not(HasSubstr("WRONG")), Not(HasSubstr("refused"))));
  const CommandResult formula = run_coda({"check", kExample, "--formula", "y = x"});
  EXPECT_EQ(formula.status, 1);
  EXPECT_THAT(formula.err, HasSubstr("a graph is what its plan is checked against"));
}

// The backward of a graph is a graph, and the compiler computes it as it is written.
TEST(GraphFiles, TheirBackwardIsAGraph) {
  const TestFolder folder;
  EXPECT_EQ(run_coda({"derive", kExample, "--out", folder / "back"}).status, 0);
  const std::string file = folder / "back" + "/block_backward.coda";
  const NamedGraph backward = parse_graph(read_bytes(file));
  std::set<std::string> names;
  for (const NamedValue& output : backward.outputs) names.insert(output.name);
  EXPECT_EQ(names, (std::set<std::string>{"grad_to_x", "grad_to_norm", "grad_to_wq", "grad_to_wk",
                                          "grad_to_wv", "grad_to_wo", "grad_to_gate", "grad_to_up",
                                          "grad_to_down"}));
  EXPECT_GE(backward.graph.find_input("grad_of_y"), 0);
  const CommandResult checked = run_coda({"check", file, "--backend", "cpu", "--no-backward"});
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
  const CommandResult one = run_coda({"derive", kExample, "--gradients", "wq"});
  EXPECT_EQ(parse_graph(one.out).outputs.size(), 1U);
  EXPECT_THAT(run_coda({"derive", kExample, "--gradients", "wqq"}).err,
              HasSubstr("no gradient flows to 'wqq'; the nearest known name is \"wq\""));
}

// The kernels of a graph and its backward, as those of a model's step.
TEST(GraphFiles, HaveKernels) {
  const CommandResult kernels =
      run_coda({"emit", kExample, "--sizes", "M=256,S=256,I=128", "--storage", "bf16"});
  EXPECT_EQ(kernels.status, 0) << kernels.err;
  EXPECT_THAT(kernels.out, AllOf(HasSubstr("// forward."), HasSubstr("// backward."),
                                 HasSubstr("store(norm_scaled:bf16")));
  EXPECT_THAT(run_coda({"emit", kExample, "--sizes", "M=256,S=256"}).err,
              HasSubstr("the size I is not known"));
}

TEST(GraphFiles, AreRefusedWhereProgramsAreNeeded) {
  const CommandResult result = run_coda({"bench", kExample, "--sizes", "M=128"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("error: this is a graph, and a program is needed here: "
                                          "coda explain, run, check, derive, emit, compile"),
                                HasSubstr("coda: 1 mistake")));
  const CommandResult two =
      run_coda({"run", kExample, kExample, "--in", "x.npz", "--out", "y.npz"});
  EXPECT_THAT(two.err, HasSubstr("is a graph, which is taken by itself: give one file"));
}

}  // namespace
}  // namespace graph_files
}  // namespace coda
