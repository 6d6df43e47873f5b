// SPDX-License-Identifier: Apache-2.0
// `coda check`: programs that are right pass with an error below its bound at all usual sizes, the
// same bits in every configuration, and their mathematics; what is not well formed fails with a
// line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/run_command.h"

namespace coda {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Check, GivenSizesAreUsedAndEachStoredTensorHasALine) {
  const std::string file = std::string(CODA_SOURCE_DIR) + "/programs/residual_norm.coda";
  const CommandResult result = run_coda({"check", file, "--backend", "cpu", "--sizes",
                                         "M=30,N=70,K=70", "--configurations", "2", "--brief"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("sizes K=70 M=30 N=70"));
  for (const char* tensor : {"cpu: x ", "cpu: h ", "cpu: squares "})
    EXPECT_THAT(result.out, HasSubstr(tensor));
  EXPECT_THAT(result.out, HasSubstr("partials by rows"));
  EXPECT_THAT(result.out, HasSubstr("2 configurations"));
  EXPECT_THAT(result.out, Not(HasSubstr("well formed")));
}

const std::string kProjection = std::string(CODA_SOURCE_DIR) + "/programs/residual_norm.coda";
const std::string kFinalizer = std::string(CODA_SOURCE_DIR) + "/programs/rms_statistic.coda";

TEST(Check, AFormulaIsComparedWithWhatIsStored) {
  const TestFolder folder;
  const std::string lines = folder.write("lines.txt", "squares = sum(x ** 2, axis=1)\n");
  const CommandResult result =
      run_coda({"check", kProjection, kFinalizer, "--backend", "cpu", "--sizes", "M=30,N=70,K=70",
                "--formula", "x = x0 + y @ w.T", "--formula", lines, "--formula",
                "r = 1 / sqrt(squares / N + 1e-5)"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("squares              [30]"));
  EXPECT_THAT(result.out, HasSubstr("not compared: h"));
  EXPECT_THAT(result.out, HasSubstr("The program computes what is wanted"));
}

TEST(Check, ADifferenceIsShownWithItsFirstElements) {
  const CommandResult result =
      run_coda({"check", kProjection, "--backend", "cpu", "--sizes", "M=3,N=5,K=5", "--seed", "7",
                "--formula", "x = 2 * (x0 + y @ w.T)"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("WRONG: 15 of 15 elements differ"));
  EXPECT_THAT(result.out, HasSubstr("all of it is 0.5 times what is wanted"));
  EXPECT_THAT(result.out, HasSubstr("[0, 0]: "));
  EXPECT_THAT(result.err, HasSubstr("--seed 7 replays it"));
}

const char* const kPython =
    "def x(x0, y, w):\n    return x0 + y @ w.T\n\n"
    "def wrong(x0, **others):\n    return {'x': x0, 'rows': others['M']}\n\n"
    "def asks(v):\n    return v\n";

CommandResult checked_by_python(const std::string& function, const std::string& path) {
  return run_coda(
      {"check", kProjection, "--backend", "cpu", "--sizes", "M=3,N=5,K=5", "--formula", function},
      {.environment = {{"PATH", path}}});
}

TEST(Check, AFormulaMayBeAPythonFunction) {
  const std::string path = std::string(CODA_SOURCE_DIR) + "/.venv/bin:" + std::getenv("PATH");
  const std::string has_numpy = "PATH=" + path + " python3 -c 'import numpy' 2>/dev/null";
  if (std::system(has_numpy.c_str()) != 0) GTEST_SKIP() << "python3 has no numpy here";
  const TestFolder folder;
  const std::string file = folder.write("model.py", kPython);
  const CommandResult right = checked_by_python(file + ":x", path);
  EXPECT_EQ(right.status, 0) << right.out << right.err;
  EXPECT_THAT(right.out, HasSubstr("The program computes what is wanted"));
  const CommandResult wrong = checked_by_python(file + ":wrong", path);
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.out, HasSubstr("15 of 15 elements differ"));
  EXPECT_THAT(checked_by_python(file + ":asks", path).err,
              HasSubstr(":asks: asks asks for v; there are K, M, N, norm, w, x0, y"));
}

TEST(Check, SaysWhatPythonLacks) {
  const TestFolder folder;
  const std::string file = folder.write("model.py", kPython);
  EXPECT_THAT(checked_by_python(file + ":x", folder / "empty").err,
              HasSubstr("python3 is not found"));
  const std::string python = folder.write(
      "bin/python3",
      "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'numpy'\" >&2\nexit 1\n");
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  EXPECT_THAT(checked_by_python(file + ":x", folder / "bin").err,
              HasSubstr("No module named 'numpy' (pip install numpy)"));
}

TEST(Check, AFormulaThatSaysNothingOfTheProgramIsRefused) {
  const auto error_of = [](const std::string& formula) {
    return run_coda({"check", kProjection, "--backend", "cpu", "--sizes", "M=3,N=5,K=5",
                     "--formula", formula})
        .err;
  };
  EXPECT_THAT(error_of("x2 = x0"), HasSubstr("none of which the programs store; they store h, "
                                             "squares, x; the nearest known name is"));
  EXPECT_THAT(error_of("x = x0 + y @ wi.T"), HasSubstr("'wi' has no value here"));
  EXPECT_THAT(error_of("x = y @ x0"), HasSubstr("@ cannot multiply [3, 5] by [3, 5]"));
  EXPECT_THAT(error_of("missing.txt"), HasSubstr("cannot read missing.txt"));
}

TEST(Check, ShapesThatDifferAreWrong) {
  const CommandResult result = run_coda({"check", kProjection, "--backend", "cpu", "--sizes",
                                         "M=3,N=5,K=5", "--formula", "x = (x0 + y @ w.T).T"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("the shape that is wanted is [5, 3]"));
}

TEST(Check, OneJsonObjectHasAllOfIt) {
  const CommandResult result = run_coda({"check", kProjection, "--backend", "cpu", "--sizes",
                                         "M=3,N=5,K=5", "--json", "--formula", "x = x0 - y @ w.T"});
  EXPECT_EQ(result.status, 1);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("right"), false);
  EXPECT_EQ(json.at("seed"), 1);
  EXPECT_EQ(json.at("mathematics").at("residual_norm").size(), 4U);
  EXPECT_EQ(json.at("compared").at(0).at("tensors").at(0).at("right"), false);
  const auto& checked = json.at("programs").at(0).at("checked").at(0);
  EXPECT_EQ(checked.at("sizes").at("M"), 3);
  EXPECT_EQ(checked.at("backends").at(0).at("right"), true);
  EXPECT_EQ(json.at("backward").at("gradients").size(), 4U);
}

TEST(Check, TheDerivedBackwardIsCheckedUnlessItIsLeftOut) {
  const Words words{"check", kProjection, kFinalizer, "--backend", "cpu", "--sizes", "M=3,N=5,K=5"};
  const CommandResult with = run_coda(words);
  EXPECT_EQ(with.status, 0) << with.out << with.err;
  EXPECT_THAT(with.out, HasSubstr("as finite differences have it: grad_to_y"));
  EXPECT_THAT(run_coda(words + Words{"--no-backward"}).out, Not(HasSubstr("grad_to")));
}

TEST(Check, AWrittenBackwardIsComparedWithFiniteDifferencesOfItsForward) {
  const TestFolder folder;
  const std::string forward = folder.write(
      "f.coda", "program f {\n  store(y, gemm(x[M, K], w[N, K]) * per_column(b[N]))\n}\n");
  const std::string text = "program b {\n  store(dx, gemm(dz[M, N], w[N, K]))\n}\n";
  const std::string scale =
      folder.write("s.coda", "program s {\n  store(dz, tile(dy[M, N]) * per_column(b[N]))\n}\n");
  const std::string wrong_scale =
      folder.write("t.coda", "program t {\n  store(dz, tile(dy[M, N]) - per_column(b[N]))\n}\n");
  const std::string backward = folder.write("b.coda", text);
  const CommandResult right =
      run_coda({"check", scale, backward, "--backend", "cpu", "--backward-of", forward});
  EXPECT_EQ(right.status, 0) << right.out << right.err;
  EXPECT_THAT(right.out, HasSubstr("as finite differences have it: dx"));
  EXPECT_THAT(right.out, HasSubstr("The program computes what is wanted"));
  const CommandResult wrong =
      run_coda({"check", wrong_scale, backward, "--backend", "cpu", "--backward-of", forward});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.out, HasSubstr("WRONG, finite differences are others: dx"));
  EXPECT_THAT(wrong.err, HasSubstr("the program does not compute what is wanted"));
}

TEST(Check, ALackingGpuIsOneLine) {
  const CommandResult result = run_coda({"check", kProjection, "--sizes", "M=3,N=5,K=5", "--brief"},
                                        {.environment = {{"CODA_CUDA_DRIVER", "/nowhere"}}});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, testing::StartsWith("no GPU here: checked on the CPU alone; `coda info` "
                                              "says why\n\n"));
}

TEST(Check, ASizeOfNoSymbolIsRefused) {
  const std::string file = std::string(CODA_SOURCE_DIR) + "/programs/residual_norm.coda";
  const CommandResult result =
      run_coda({"check", file, "--sizes", "M=30,N=70,K=70,D=8", "--brief"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err,
              HasSubstr("D is no size of the programs, they have K, M, N: check the name"));
  EXPECT_EQ(result.out, "");
}

// Rows are gathered, a column is selected by indices of which some lie outside, and differences
// cancel: the bound is that of single precision on these very numbers.
TEST(Check, IndicesAndCancellationAreWithinTheBound) {
  const TestFolder folder;
  const std::string file = folder.write("p.coda", R"(program p {
  acc = gemm(h[M, K]:bf16, w[N, K]:bf16, nt)
  x = acc + tile(table[T, N], rows=ids[M])
  store(y, (x + 1000) - 1000)
  store(chosen, select_column(x, per_row(target[M]:i32)))
  row_partial(sums, log_sum_exp(x))
})");
  const CommandResult result = run_coda({"check", file, "--backend", "cpu"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("WRONG")));
}

// Products on a GPU have 16-bit operands; the files need not say so.
TEST(Check, MatricesAreStoredIn16BitsIfAskedFor) {
  const TestFolder folder;
  const std::string file =
      folder.write("p.coda", "program p {\n  store(y, gemm(x[M, K], w[N, K]))\n}\n");
  const CommandResult result = run_coda({"check", file, "--backend", "cpu", "--sizes",
                                         "M=30,N=70,K=70", "--storage", "f16", "--brief"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("cpu: y                    f16"));
  EXPECT_THAT(result.out, Not(HasSubstr("WRONG")));
}

// The reference multiplies on one core: what would take hours is refused at once.
TEST(Check, SizesThatTheReferenceIsTooSlowForAreRefused) {
  const std::string file = std::string(CODA_SOURCE_DIR) + "/programs/residual_norm.coda";
  const CommandResult result =
      run_coda({"check", file, "--backend", "cpu", "--sizes", "M=65536,N=8192,K=8192", "--brief"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err,
              HasSubstr("program 'residual_norm' at K=8192 M=65536 N=8192: the reference in "
                        "float64 would take about 27"));
}

// Every command that reads programs shows all mistakes, each with its line and a mark.
TEST(Check, WhatIsNotWellFormedFailsWithTheFileAndTheLine) {
  const TestFolder folder;
  const std::string bad =
      folder.write("bad.coda", "program p {\n  z = tile(x[M, N]) * per_rwo(r)\n  store(x\n}\n");
  const std::string good = folder.write("good.coda", "program p {\n  store(y, tile(x[M, N]))\n}\n");
  for (const char* command : {"check", "derive", "explain", "emit", "compile", "tune"}) {
    const CommandResult result = run_coda({command, bad});
    EXPECT_EQ(result.status, 1) << command;
    EXPECT_EQ(result.err, bad +
                              ":2:23: error: there is no function 'per_rwo'; did you mean "
                              "'per_row'?\n"
                              "    z = tile(x[M, N]) * per_rwo(r)\n"
                              "                        ^~~~~~~\n" +
                              bad +
                              ":3:10: error: expected ',', the line ends\n"
                              "    store(x\n"
                              "           ^\n"
                              "coda: 2 mistakes in the program\n")
        << command;
  }
  EXPECT_THAT(run_coda({"bench", "program", bad}).err, HasSubstr(bad + ":2:23: error: "));
  EXPECT_EQ(run_coda({"check", good, "--backend", "cpu", "--sizes", "M=3,N=5"}).status, 0);
}

// A file may hold several programs. All their mistakes are reported, each with its line.
TEST(Check, AFileHasSeveralPrograms) {
  const TestFolder folder;
  const std::string right = folder.write("right.coda", R"(# two
program a { store(x2, tile(x[M, N]) * 2) }

program b {
  row_partial(s, sum(tile(x2[M, N])))
}
program c { store(r, combine_rows(sum(s[M, N])) / size(N)) }
)");
  const CommandResult result = run_coda({"check", right, "--backend", "cpu", "--configurations",
                                         "1", "--formula", "r = mean(2 * x, axis=1)"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("The program computes what is wanted"));
  const std::string wrong = folder.write(
      "wrong.coda", "program a { store(y, tilo(x[M, N])) }\nprogram b {\n  store(z, w)\n}\n");
  const std::string err = run_coda({"check", wrong}).err;
  EXPECT_THAT(err, HasSubstr(wrong + ":1:22: error: "));
  EXPECT_THAT(err, HasSubstr(wrong + ":3:12: error: "));
  EXPECT_THAT(err, HasSubstr("2 mistakes"));
}

TEST(Check, NotesSayWhatIsChangedInPlaceAndWhichPartialsNobodyCombines) {
  const TestFolder folder;
  const std::string file = folder.write("p.coda", R"(program p {
  dw = tile(dw[N, K]) + gemm(dy[M, N], x[M, K])
  store(dw, dw)
  row_partial(squares, sum(dw * dw))
})");
  const CommandResult result =
      run_coda({"check", file, "--backend", "cpu", "--sizes", "M=5,N=7,K=6"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("note: dw is an input of p and an output, in the same memory"));
  EXPECT_THAT(result.out, HasSubstr("note: squares holds partials, which no program here combines; "
                                    "add a finalizer, a program after this one that combines "
                                    "them: store(r, combine_rows(sum(squares[N, K])))"));
  const std::string reader =
      folder.write("q.coda", "program q {\n  store(y, tile(dw[N, K]) * per_row(squares[N]))\n}\n");
  EXPECT_THAT(run_coda({"check", file, reader, "--backend", "cpu"}).out,
              HasSubstr("program 'q' reads tensor 'squares' as values, but program 'p' stores "
                        "partials in the tensor"));
}

TEST(Check, HelpHasExamplesOfItsCommand) {
  for (const char* command : {"train", "eval", "sample", "explain", "derive", "emit", "check",
                              "run", "fmt", "bench", "compile", "tune", "info"}) {
    const std::string help = run_coda({command, "--help"}).out;
    const size_t examples = help.find("Examples:");
    ASSERT_NE(examples, std::string::npos) << command;
    EXPECT_EQ(help.find(std::string("coda ") + command, examples), examples + 12) << command;
  }
}

// size() works in programs with tiles and in finalizers, for a symbol and for a sum. The text of a
// kernel contains the number.
TEST(Check, ASizeIsANumber) {
  const TestFolder folder;
  const std::string file = folder.write("p.coda", R"(program p {
  hot = column_index(V) == per_row(target[M]:i32)
  dl = exp(tile(l[M, V]) - per_row(lse[M])) - 0.9 * hot - 0.1 / size(V)
  store(dl, dl)
  row_partial(s, sum(dl))
}
program q { store(mean, combine_rows(sum(s[M, V])) / size(2*V + 1)) })");
  const CommandResult result =
      run_coda({"check", file, "--backend", "cpu", "--sizes", "M=70,V=67", "--formula",
                "hot = arange(V)[None, :] == target[:, None]; "
                "dl = exp(l - lse[:, None]) - 0.9 * hot - 0.1 / V; "
                "mean = dl.sum(axis=1) / (2 * V + 1)"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("- 0.1 / V"));
  EXPECT_THAT(run_coda({"emit", file, "--sizes", "M=70,V=67"}).out,
              testing::AllOf(HasSubstr("67.0f"), HasSubstr("135.0f")));
}

}  // namespace
}  // namespace coda
