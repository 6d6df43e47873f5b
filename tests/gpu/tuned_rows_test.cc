// SPDX-License-Identifier: Apache-2.0
// Rows of measured configurations: that text is read as it was written, what cannot be read is left
// out, the nearest row is found, and which of several sources decides.
#include "gpu/configure/tuned_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gpu/codegen/gemm_program.h"
#include "gpu/configure/tuned_table.h"
#include "gpu/tuned_file.h"
#include "io/temp_folder.h"

namespace coda::gpu {
namespace {

GemmConfig choice(const std::string& code) { return parse_choice(code).value(); }

constexpr const char* kProgram = R"(program rows {
  acc = gemm(x[M, K]:bf16, w[N, K]:bf16, nt)
  x0 = tile(x0[M, N]:bf16)
  store(y:bf16, x0 + acc)
})";
constexpr const char* kEightBitProgram = R"(program rows {
  acc = gemm(x[M, K]:e4m3, w[N, K]:e4m3, nt)
  x0 = tile(x0[M, N]:bf16)
  store(y:bf16, x0 + acc)
})";
const DimValues kTunedSizes{{"M", 4096}, {"N", 2048}, {"K", 2048}};

ChosenConfig chosen(const DimValues& sizes, const std::string& tuned,
                    const char* program = kProgram) {
  LowerOptions options;
  options.uses_table = false;
  options.tuned = std::make_shared<const TunedRows>(tuned);
  return GemmProgram(parse_program(program), sizes, options).chosen(0);
}

KernelClass own_class(const DimValues& sizes, const char* program = kProgram) {
  return GemmProgram(parse_program(program), sizes, {}).class_of(0);
}

TEST(TunedRows, EveryConfigurationHasACodeThatIsReadBack) {
  for (const RankedChoice& one : GemmProgram(parse_program(kProgram), kTunedSizes, {}).ranked(0)) {
    const auto parsed = parse_choice(code(one.choice));
    ASSERT_TRUE(parsed) << code(one.choice);
    EXPECT_EQ(text(*parsed), text(one.choice));
  }
  for (const char* bad :
       {"", "128x256", "128x256c21s3 ", "128x256p21s3", "128x256c00s3", "100x100c11s3",
        "128x256c21s9", "x", "128x256c21s3x", "128x256c2111s3", "128x128c12s7", "128x64c12s6"}) {
    EXPECT_FALSE(parse_choice(bad)) << bad;
  }
  // One tile with either schedule.
  EXPECT_EQ(text(choice("128x128p12s6")), "128x128 ping-pong, cluster 1x2, 6 stages");
  EXPECT_EQ(text(choice("128x128c12s6")), "128x128 cooperative, cluster 1x2, 6 stages");
}

TEST(TunedRows, TextIsReadAsItWasWritten) {
  TunedRows rows;
  rows.set({"tn p1 l1 s2 w1 rs", {{16384, 4096, 2048}}},
           {{choice("128x256c21s3"), 812.5}, {choice("128x128p12s6"), 800.25}});
  rows.set({"nt 3(p1 s1)", {{4096, 64, 2048}, {1, 2, 3}, {5, 6, 7}}}, {{choice("64x64p11s8"), 3}});
  EXPECT_EQ(rows.text(),
            "nt 3(p1 s1) | 4096x64x2048+1x2x3+5x6x7 | 64x64p11s8 3.00\n"
            "tn p1 l1 s2 w1 rs | 16384x4096x2048 | 128x128p12s6 800.25 128x256c21s3 812.50\n");
  EXPECT_EQ(TunedRows(rows.text()).text(), rows.text());
}

TEST(TunedRows, WhatCannotBeReadIsLeftOutAndItsLineKnown) {
  std::vector<std::string> left_out;
  const TunedRows rows(
      "# a comment\n\nno row\n"
      "a | 1x2 | 128x256c21s3 1\n"
      "a | 1x2x0 | 128x256c21s3 1\n"
      "a | 1x2x3x | 128x256c21s3 1\n"
      "a | 1x2x99999999999999999999 | 128x256c21s3 1\n"
      "a | 1x2x3 | 100x256c21s3 1\n"
      "a | 1x2x3 |\n"
      "b | 1x2x3 | 128x256c21s3 -4 128x128p12s6 2 64x64p11s8 nonsense\n"
      "c | 1x2x3 | 128x128p12s6 2 64x64p11s8 3\n",
      &left_out);
  EXPECT_EQ(rows.text(),
            "b | 1x2x3 | 128x128p12s6 2.00\nc | 1x2x3 | 128x128p12s6 2.00 64x64p11s8 3.00\n");
  EXPECT_EQ(left_out.size(), 8U);
  EXPECT_EQ(left_out.front(), "no row");
  EXPECT_THAT(left_out.back(), testing::StartsWith("b | "));
}

TEST(TunedRows, ARowOfTheSameKernelIsReplaced) {
  TunedRows rows("a | 1x2x3 | 128x256c21s3 1\na | 4x5x6 | 128x256c21s3 2\n");
  rows.add(TunedRows("a | 4x5x6 | 128x128p12s6 3\nb | 4x5x6 | 128x128p12s6 4\n"));
  EXPECT_EQ(rows.text(),
            "a | 1x2x3 | 128x256c21s3 1.00\na | 4x5x6 | 128x128p12s6 3.00\n"
            "b | 4x5x6 | 128x128p12s6 4.00\n");
  EXPECT_EQ(rows.size(), 3U);
}

TEST(TunedRows, TheNearestRowIsFoundAndNoneThatIsFar) {
  const TunedRows rows("a | 1024x2048x2048 | 128x256c21s3 1\na | 16384x2048x2048 | 64x64p11s8 2\n");
  const auto found = [&](const std::string& name, SpaceExtents extents) -> std::string {
    const TunedRow* row = rows.nearest({name, {extents}});
    return row == nullptr ? "none" : text(row->extents);
  };
  EXPECT_EQ(found("a", {1024, 2048, 2048}), "1024x2048x2048");
  EXPECT_EQ(found("a", {2048, 2048, 2048}), "1024x2048x2048");
  EXPECT_EQ(found("a", {8192, 2048, 2048}), "16384x2048x2048");
  EXPECT_EQ(found("a", {65536, 2048, 2048}), "16384x2048x2048");
  EXPECT_EQ(found("a", {65536, 8192, 8192}), "none");
  EXPECT_EQ(found("b", {1024, 2048, 2048}), "none");
  EXPECT_EQ(rows.nearest({"a", {{1024, 2048, 2048}, {1024, 2048, 2048}}}), nullptr);
}

// The squares of a weight's gradient beside its product: nothing was timed for that class.
TEST(TunedRows, AClassWithoutRowsHasThoseOfThePlainOne) {
  const auto class_with = [](const std::string& epilogue) {
    const DimValues sizes{{"M", 512}, {"N", 256}, {"K", 128}};
    const std::string product = "  acc = gemm(dy[M, N]:bf16, x[M, K]:bf16)\n";
    return GemmProgram(parse_program("program p {\n" + product + epilogue + "}\n"), sizes, {})
        .class_of(0);
  };
  const KernelClass plain = class_with("  store(dw, acc)\n");
  const KernelClass squared =
      class_with("  store(dw, acc)\n  row_partial(squares, sum(acc * acc))\n");
  EXPECT_NE(squared.name, plain.name);
  EXPECT_EQ(squared.plain_name, plain.name);
  const std::string of_plain = plain.name + " | 256x128x512 | 128x256c21s3 1\n";
  EXPECT_NE(TunedRows(of_plain).nearest(squared), nullptr);
  const std::string of_both = of_plain + squared.name + " | 256x128x512 | 64x64p11s8 1\n";
  EXPECT_EQ(code(TunedRows(of_both).nearest(squared)->choices.front().choice), "64x64p11s8");
  EXPECT_EQ(class_with("  store(dw, acc)\n  row_partial(lse, log_sum_exp(acc))\n").plain_name, "");
}

TEST(TunedRows, OfWhatBothWereMeasuredForAGpuGetsItsOwn) {
  const auto first = [](bool of_h100, const std::string& name, SpaceExtents extents) {
    const TunedRow* row = measured_table(sm90(), of_h100).nearest({name, {extents}});
    return row == nullptr || row->extents.front() != extents ? "none"
                                                             : code(row->choices.front().choice);
  };
  const SpaceExtents both{6400, 1600, 16384};
  EXPECT_EQ(first(false, "nt p1 d4", both), "128x128p21s6");
  EXPECT_EQ(first(true, "nt p1 d4", both), "192x128p12s4");
  for (const bool of_h100 : {false, true}) {
    EXPECT_EQ(first(of_h100, "nt p1 d4", {4800, 1600, 16384}), "192x128p12s4");  // an H100's alone
    EXPECT_NE(first(of_h100, "nt p1 d4", {2048, 2048, 16384}), "none");          // an H200's alone
  }
  EXPECT_TRUE(is_h100("NVIDIA H100 80GB HBM3"));
  EXPECT_FALSE(is_h100("NVIDIA H200"));
}

// Names, sizes and the arrangement of what is elementwise do not matter; what is moved and reduced
// does.
TEST(TunedRows, ClassesAreThoseOfEpilogues) {
  const auto name_of = [](const std::string& body) {
    const DimValues sizes{{"M", 512}, {"N", 256}, {"K", 128}};
    return GemmProgram(parse_program("program p {\n" + body + "}\n"), sizes, {}).class_of(0).name;
  };
  const std::string product = "  acc = gemm(a[M, K]:bf16, b[N, K]:bf16, nt)\n";
  const std::string plain = name_of(product + "  store(y:bf16, acc)\n");
  EXPECT_EQ(plain, "tn p1 s1");
  EXPECT_EQ(name_of("  q = gemm(u[M, K]:f16, v[N, K]:f16, nt)\n  store(z:f16, q)\n"), plain);
  EXPECT_NE(name_of("  acc = gemm(a[M, K]:bf16, b[K, N]:bf16)\n  store(y:bf16, acc)\n"), plain);
  EXPECT_NE(name_of(product + "  store(y:bf16, acc + tile(r[M, N]:bf16))\n"), plain);
  EXPECT_NE(name_of(product + "  store(y:bf16, acc)\n  row_partial(s, sum(acc * acc))\n"), plain);
  EXPECT_NE(name_of(product + "  store(y, tile(y[M, N]) + acc)\n"), plain);
  // Whichever of two spaces comes first.
  const std::string other = "  other = gemm(a, v[J, K]:bf16, nt)\n  store(z:bf16, other)\n";
  const std::string summed = product + "  store(y:bf16, acc)\n  row_partial(r, sum(acc))\n";
  const DimValues sizes{{"M", 512}, {"N", 256}, {"K", 128}, {"J", 64}};
  const std::string first =
      "  other = gemm(a[M, K]:bf16, v[J, K]:bf16, nt)\n  store(z:bf16, other)\n";
  const auto class_in_order = [&](const std::string& body) {
    return GemmProgram(parse_program("program p {\n" + body + "}\n"), sizes, {}).class_of(0);
  };
  const KernelClass one = class_in_order(summed + other);
  std::string second = summed;
  second.replace(second.find("a[M, K]:bf16"), 12, "a");
  const KernelClass two = class_in_order(first + second);
  EXPECT_EQ(one.name, two.name);
  EXPECT_EQ(one.extents, two.extents);
  EXPECT_NE(one.spaces, two.spaces);
}

TEST(ChosenConfig, WithoutRowsTheModelDecides) {
  const ChosenConfig here = chosen(kTunedSizes, "");
  EXPECT_EQ(here.source, ChoiceSource::model);
  EXPECT_EQ(text(here), "the model");
}

// The slowest by the model, to be sure that it was not its choice.
TEST(ChosenConfig, ARowAtTheseSizesDecides) {
  const KernelClass own = own_class(kTunedSizes);
  const GemmProgram program(parse_program(kProgram), kTunedSizes, {});
  const std::string last = code(program.ranked(0).back().choice);
  const std::string row = own.name + " | " + text(own.extents) + " | " + last + " 1 ";
  const ChosenConfig here =
      chosen(kTunedSizes, row + code(program.ranked(0).front().choice) + " 2");
  EXPECT_EQ(code(here.choice), last);
  EXPECT_EQ(here.source, ChoiceSource::tuned);
  EXPECT_EQ(text(here), "tuned at 4096x2048x2048");
  LowerOptions options;
  options.tuned = std::make_shared<const TunedRows>(row);
  options.choice = program.ranked(0)[1].choice;
  const ChosenConfig asked = GemmProgram(parse_program(kProgram), kTunedSizes, options).chosen(0);
  EXPECT_EQ(code(asked.choice), code(*options.choice));
  EXPECT_EQ(asked.source, ChoiceSource::asked);
}

// A tile is not all of a configuration: rows know its schedules apart, at their sizes and at
// others.
TEST(ChosenConfig, ATimeIsThatOfATileWithItsSchedule) {
  DimValues small = kTunedSizes;
  small["M"] = 1024;
  const KernelClass own = own_class(small);
  const std::string key = own.name + " | " + text(own.extents) + " | ";
  for (const std::string first : {"128x128p12s6", "128x128c12s6"}) {
    const std::string second = first == "128x128p12s6" ? "128x128c12s6" : "128x128p12s6";
    const std::string rows = key + second + " 40 " + first + " 20\n";
    EXPECT_EQ(TunedRows(rows).text(), key + first + " 20.00 " + second + " 40.00\n");
    EXPECT_EQ(code(chosen(small, rows).choice), first);
    DimValues near = small;
    near["N"] = 1920;
    EXPECT_EQ(code(chosen(near, rows).choice), first);
  }
}

// What a kernel cannot be made with is passed over.
TEST(ChosenConfig, AnIllegalConfigurationIsNeverTaken) {
  const KernelClass own = own_class(kTunedSizes);
  const ChosenConfig here =
      chosen(kTunedSizes, own.name + " | " + text(own.extents) + " | 64x64p11s3 1 256x192c12s9 1");
  EXPECT_EQ(here.source, ChoiceSource::tuned);
  const ChosenConfig none =
      chosen(kTunedSizes, own.name + " | " + text(own.extents) + " | 256x192c11s2 1");
  EXPECT_EQ(none.source, ChoiceSource::model);
}

// A row at 4096 rows where a tile shape was far better than the model thinks: so it is at 8192. But
// waves are counted anew: at 512 rows there are so few large tiles that most processors idle.
// In 8 bits too, where a block of K has twice the elements.
TEST(ChosenConfig, ARowAtOtherSizesCorrectsTheModel) {
  for (const char* text_of_program : {kProgram, kEightBitProgram}) {
    const KernelClass own = own_class(kTunedSizes, text_of_program);
    const GemmProgram program(parse_program(text_of_program), kTunedSizes, {});
    const std::string best = code(program.ranked(0).front().choice);
    const std::string large = best == "256x128c21s3" ? "256x128c12s3" : "256x128c21s3";
    const std::string rows =
        own.name + " | " + text(own.extents) + " | " + large + " 100 " + best + " 150\n";
    DimValues twice = kTunedSizes;
    twice["M"] = 8192;
    EXPECT_EQ(code(chosen(twice, rows, text_of_program).choice), large);
    EXPECT_EQ(text(chosen(twice, rows, text_of_program)), "tuned at 4096x2048x2048");
    DimValues small = kTunedSizes;
    small["M"] = 512;
    EXPECT_NE(code(chosen(small, rows, text_of_program).choice), large);
  }
}

// The shipped rows are of GPUs with 132 multiprocessors. On those the fastest configuration of a
// row at exactly these sizes is taken. On a GPU with few, large tiles fill whole waves, so the
// row's times only correct the model, as those of other sizes do.
TEST(ChosenConfig, ARowAtTheseSizesDecidesOnlyForAsManyMultiprocessors) {
  const Program program =
      parse_program("program product { store(y:bf16, gemm(x[M, K]:bf16, w[N, K]:bf16, nt)) }");
  const DimValues sizes{{"M", 1024}, {"N", 1024}, {"K", 1024}};
  const auto chosen_for = [&](uint32_t multiprocessors) {
    LowerOptions options;
    options.multiprocessors = multiprocessors;
    return code(GemmProgram(program, sizes, options).chosen(0).choice);
  };
  const TunedRow* row = measured_table(sm90()).nearest(GemmProgram(program, sizes, {}).class_of(0));
  ASSERT_NE(row, nullptr);
  ASSERT_EQ(text(row->extents), "1024x1024x1024");
  const std::string fastest = code(row->choices.front().choice);
  EXPECT_EQ(chosen_for(132), fastest);
  EXPECT_NE(chosen_for(16), fastest);
}

// A shipped file is what its rows are written as, so a row that is measured again changes a line.
std::string rows_of_file(const std::string& name) {
  std::ifstream file(CODA_SOURCE_DIR "/src/gpu/sm90/" + name);
  std::string rows;
  for (std::string line; std::getline(file, line);)
    if (!line.starts_with("#")) rows += line + "\n";
  return rows;
}

// What was measured later on an H200 stands in place of the table's row.
TEST(TunedTable, IsTheFilesAsTheirRowsAreWritten) {
  for (const char* name : {"tuned_rows.txt", "tuned_rows_h100.txt", "tuned_rows_h200.txt"})
    EXPECT_EQ(TunedRows(rows_of_file(name)).text(), rows_of_file(name)) << name;
  EXPECT_EQ(measured_rows(sm90(), true).text(), rows_of_file("tuned_rows_h100.txt"));
  TunedRows rows(rows_of_file("tuned_rows.txt"));
  const size_t of_table = rows.size();
  rows.add(TunedRows(rows_of_file("tuned_rows_h200.txt")));
  EXPECT_EQ(measured_rows(sm90(), false).text(), rows.text());
  EXPECT_GT(of_table, 600U);
  EXPECT_GT(rows.size(), of_table);
}

// Kernels that are compiled for a GPU that is not here take what was tuned on one of its size.
TEST(TunedFile, RowsAreOfAGpuWithAsManyMultiprocessors) {
  setenv("CODA_CUDA_DRIVER", CODA_FAKE_CUDA, 1);  // whose version is in the file's name
  const TempFolder folder;
  const auto file_of = [&](int multiprocessors) {
    DeviceInfo device;
    device.name = "NVIDIA H200 MIG";
    device.multiprocessors = multiprocessors;
    return tuned_file(folder.path(), device, {12, 8}, sm90());
  };
  EXPECT_NE(file_of(132), file_of(60));
  save_tuned_rows(file_of(132), TunedRows("a | 1x2x3 | 128x256c21s3 1\n"));
  EXPECT_EQ(latest_tuned_file(folder.path(), sm90(), 132), file_of(132));
  EXPECT_EQ(latest_tuned_file(folder.path(), sm90(), 60), "");
  EXPECT_EQ(latest_tuned_file(folder.path(), sm90(), 32), "");
  save_tuned_rows(file_of(60), TunedRows("a | 1x2x3 | 128x256c21s3 1\n"));
  EXPECT_EQ(latest_tuned_file(folder.path(), sm90(), 132), file_of(132));
  EXPECT_EQ(latest_tuned_file(folder.path(), sm90(), 60), file_of(60));
}

TEST(TunedFile, RowsAreOfATarget) {
  setenv("CODA_CUDA_DRIVER", CODA_FAKE_CUDA, 1);
  const TempFolder folder;
  DeviceInfo device;
  device.name = "NVIDIA GeForce RTX 4090";
  device.multiprocessors = 128;
  const auto file_of = [&](const Target& target) {
    return tuned_file(folder.path(), device, {12, 8}, target);
  };
  // A tile that sm90 does not have.
  const std::string row = "tn p1 s1 | 512x256x128 | 128x64c11s3 1.00\n";
  EXPECT_EQ(TunedRows(row).text(), row);
  save_tuned_rows(file_of(sm89()), TunedRows(row));
  EXPECT_EQ(latest_tuned_file(folder.path(), sm89(), 128), file_of(sm89()));
  EXPECT_EQ(latest_tuned_file(folder.path(), sm90(), 128), "");
  save_tuned_rows(file_of(sm90()), TunedRows("a | 1x2x3 | 128x256c21s3 1\n"));
  EXPECT_EQ(latest_tuned_file(folder.path(), sm89(), 128), file_of(sm89()));
  EXPECT_EQ(latest_tuned_file(folder.path(), sm90(), 128), file_of(sm90()));
}

TEST(TunedFile, RowsAreAddedToThoseOfOtherKernels) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("coda_tuned_" + std::to_string(::getpid()));
  const std::filesystem::path file = folder / "tuned" / "some GPU.txt";
  EXPECT_EQ(load_tuned_rows(file), nullptr);
  EXPECT_EQ(latest_tuned_file(folder, sm90()), "");
  save_tuned_rows(file, TunedRows("a | 1x2x3 | 128x256c21s3 1\n"));
  save_tuned_rows(file, TunedRows("b | 1x2x3 | 128x256c21s3 2\n"));
  EXPECT_EQ(load_tuned_rows(file)->text(),
            "a | 1x2x3 | 128x256c21s3 1.00\nb | 1x2x3 | 128x256c21s3 2.00\n");
  EXPECT_EQ(latest_tuned_file(folder, sm90()), file);
  std::ofstream(file) << "something else";
  EXPECT_EQ(load_tuned_rows(file), nullptr);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace coda::gpu
