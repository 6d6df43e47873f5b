// SPDX-License-Identifier: Apache-2.0
// `coda run`: given arrays in, stored arrays out; sizes are those of the inputs; what does not fit
// is refused in one line, and then no file is written. `coda check --expect` compares the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/array_file.h"
#include "tools/run_command.h"

namespace coda {
namespace run_programs_on_files {
namespace {

using testing::HasSubstr;

const char* const kScaled =
    "program scaled {\n"
    "  y = gemm(x[M, K], w[N, K]) * per_row(r[M])\n"
    "  store(y, y)\n"
    "  row_partial(squares, sum(y * y))\n"
    "}\n";
const char* const kNorm =
    "program norm {\n  store(length, sqrt(combine_rows(sum(squares[M, N]))))\n}\n";

std::vector<ArrayToWrite> inputs() {
  return {{"x", DType::f32, {{2, 3}, {1, 2, 3, 4, 5, 6}}},
          {"w", DType::f32, {{2, 3}, {1, 0, 0, 0, 1, 0}}},
          {"r", DType::f32, {{2}, {1, 10}}}};
}
std::vector<ArrayToWrite> results() {
  return {{"y", DType::f32, {{2, 2}, {1, 2, 40, 50}}},
          {"length", DType::f32, {{2}, {2.2360679775, 64.031242374}}}};
}

struct Folder : TestFolder {
  std::string scaled = write("scaled.coda", kScaled);
  std::string norm = write("norm.coda", kNorm);
  std::string file(const std::string& name, const std::vector<ArrayToWrite>& arrays) const {
    write_arrays(*this / name, arrays);
    return *this / name;
  }
  CommandResult run(const std::string& in, const std::string& out) const {
    return run_coda({"run", scaled, norm, "--in", in, "--out", *this / out, "--device", "cpu"});
  }
};

TEST(Run, WritesWhatTheProgramsStoreOneBehindTheOther) {
  const Folder folder;
  for (const std::string kind : {".npz", ".safetensors"}) {
    const CommandResult result = folder.run(folder.file("x" + kind, inputs()), "y" + kind);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("on the CPU at K=3 M=2 N=2"));
    const Arrays written = read_arrays(folder / ("y" + kind));
    ASSERT_EQ(written.size(), 3U);
    EXPECT_EQ(written.at("y"), results()[0].array);
    EXPECT_EQ(written.at("squares").shape, (std::vector<int64_t>{2, 1}));
    EXPECT_NEAR(written.at("length").values[1], 64.031242374, 1e-5);
  }
}

TEST(Run, RoundsInputsToTheTypesOfTheirTensorsAndSaysSo) {
  const Folder folder;
  std::vector<ArrayToWrite> given = inputs();
  given[0].array.values[0] = 1.001;
  const std::string in = folder.file("x.npz", given);
  const CommandResult result = run_coda(
      {"run", folder.scaled, "--in", in, "--out", folder / "y.safetensors", "--storage", "bf16"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("input x is rounded to bf16"));
  EXPECT_EQ(read_arrays(folder / "y.safetensors").at("y"), results()[0].array);
}

TEST(Run, RefusesInputsThatDoNotFitAndWritesNothing) {
  const Folder folder;
  const auto error_of = [&](const std::vector<ArrayToWrite>& given) {
    const CommandResult result = folder.run(folder.file("x.npz", given), "y.npz");
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(read_bytes(folder / "y.npz"), "");
    return result.err;
  };
  std::vector<ArrayToWrite> given = inputs();
  given.pop_back();
  EXPECT_THAT(error_of(given),
              HasSubstr("the input 'r' [M] is missing; the programs read r[M], w[N, "
                        "K], x[M, K]"));
  given = inputs();
  given.push_back({"v", DType::f32, {{1}, {1}}});
  EXPECT_THAT(error_of(given), HasSubstr("no program reads 'v'"));
  given = inputs();
  given[2].array = {{3}, {1, 2, 3}};
  EXPECT_THAT(error_of(given), HasSubstr("which is ["));
  given = inputs();
  given[0].array = {{2, 3, 1}, {1, 2, 3, 4, 5, 6}};
  EXPECT_THAT(error_of(given),
              HasSubstr("has the shape [2, 3, 1] and needs [M, K], which is [2, 3]"));
}

// A damaged member shows that it was read: an array that no program reads is only named.
TEST(Run, UnpacksNoArrayThatNoProgramReads) {
  const Folder folder;
  std::vector<ArrayToWrite> given = inputs();
  given.push_back({"v", DType::f32, {{4}, {7, 8, 9, 10}}});
  const std::string bytes = read_bytes(folder.file("x.npz", given));
  const float of_v[] = {7, 8, 9, 10};
  const size_t at = bytes.find({reinterpret_cast<const char*>(of_v), sizeof of_v});
  ASSERT_NE(at, std::string::npos);
  std::string damaged = bytes;
  damaged[at] ^= 1;
  const std::string in = folder.write("damaged.npz", damaged);
  EXPECT_THAT(folder.run(in, "y.npz").err, HasSubstr("no program reads 'v'"));
  const std::string results_file = folder.file("y.npz", results());
  EXPECT_THAT(
      run_coda({"check", folder.scaled, folder.norm, "--in", in, "--expect", results_file}).err,
      HasSubstr("no program reads 'v'"));
  const std::string graph =
      folder.write("g.coda", "graph g {\n  store(y, input(x[M, K]) * 2)\n}\n");
  EXPECT_THAT(run_coda({"run", graph, "--in", in, "--out", folder / "y.npz"}).err,
              HasSubstr("the graph does not read 'r'"));
}

TEST(Run, RefusesIndicesOutsideAndNumbersThatAreNone) {
  const TestFolder folder;
  const std::string file =
      folder.write("p.coda", "program p {\n  store(y, tile(t[T, N], rows=ids[M]) * 1)\n}\n");
  const auto error_of = [&](double index) {
    const std::vector<ArrayToWrite> given{{"t", DType::f32, {{2, 1}, {7, 8}}},
                                          {"ids", DType::f64, {{1}, {index}}}};
    write_arrays(folder / "x.npz", given);
    return run_coda({"run", file, "--in", folder / "x.npz", "--out", folder / "y.npz"}).err;
  };
  EXPECT_THAT(error_of(2), HasSubstr("input 'ids' has the index 2, and 't' has 2 rows"));
  EXPECT_THAT(error_of(-1), HasSubstr("the index -1"));
  EXPECT_THAT(error_of(0.5), HasSubstr("needs whole numbers"));
  EXPECT_EQ(error_of(1), "");
}

TEST(Run, CheckComparesWithGivenResults) {
  const Folder folder;
  const std::string in = folder.file("x.safetensors", inputs());
  const auto check = [&](const std::vector<ArrayToWrite>& wanted) {
    return run_coda({"check", folder.scaled, folder.norm, "--backend", "cpu", "--configurations",
                     "1", "--sizes", "N=2", "--in", in, "--expect", folder.file("y.npz", wanted)});
  };
  const CommandResult right = check(results());
  EXPECT_EQ(right.status, 0) << right.out << right.err;
  EXPECT_THAT(right.out, HasSubstr("The program computes what is wanted"));
  std::vector<ArrayToWrite> wanted = results();
  wanted[0].array.values[3] = 51;
  const CommandResult wrong = check(wanted);
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.out, HasSubstr("1 of 4 elements differ"));
  EXPECT_THAT(wrong.out, HasSubstr("[1, 1]: 50, wanted 51"));
}

// An explicit type is the author's.
TEST(Run, StorageLeavesTypesThatAreWritten) {
  const TestFolder folder;
  const std::string file =
      folder.write("p.coda",
                   "program p {\n  # y:f32 in a comment is none\n"
                   "  store(y, tile(x[M, N]:f32) + tile(c[M, N]))\n  store(z:f32, tile(x))\n}\n");
  const CommandResult result = run_coda({"check", file, "--backend", "cpu", "--storage", "bf16"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("cpu: y                    bf16"));
  EXPECT_THAT(result.out, HasSubstr("cpu: z                    f32"));
}

}  // namespace
}  // namespace run_programs_on_files
}  // namespace coda
