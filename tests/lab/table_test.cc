// SPDX-License-Identifier: Apache-2.0
// The shipped table of configurations: what its maker writes of what was timed, without a GPU, and
// that the kernels which the table leads to have no defect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "gpu/clean_kernels.h"
#include "gpu/codegen/gemm_program.h"
#include "gpu/codegen/kernel_names.h"
#include "gpu/jit/parallel_for.h"
#include "lab/table/table_cases.h"
#include "tools/run_command.h"

namespace coda {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kPrograms = CODA_SOURCE_DIR "/programs";

// What was timed needs no GPU again. A configuration that takes a little longer at one clock, of a
// shape that draws less power, comes first; rows of other kernels are those that are shipped.
TEST(TableMaker, MakesTheTableOfWhatWasTimed) {
  const TestFolder folder;
  const std::string log =
      R"({"measured_on":"some GPU"}
{"class":"tn p2 h64 s2 d2 w2","extents":"16384x1024x2048","chosen":"128x128p12s6",)"
      R"("spaces":[{"rows":16384,"columns":1024,"k":2048,"parts":2}],)"
      R"("choices":[{"configuration":"128x128p12s6","microseconds":225.0},)"
      R"({"configuration":"128x256c21s3","microseconds":230.0}]}
{"class":"tn p2 h64 s2 d2 w2","extents":"16384x1024x2048"}
{"class":"tn p2 s3)";  // no record, and a run that ended within one
  folder.write("table.txt.jsonl", log);
  const Words command{folder / "table.txt", "--benchmarks", kPrograms, "--cases",
                      "benchmarks",         "--only"};
  const CommandResult result = run_coda(command + Words{"w2 | 16384x1024x2048"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 of 1 kernels"));
  const std::string table = read_bytes(folder / "table.txt");
  EXPECT_THAT(table, HasSubstr("Measured on some GPU."));
  EXPECT_THAT(table, HasSubstr("\ntn p2 h64 s2 d2 w2 | 16384x1024x2048 | 128x256c21s3 218.22 "
                               "128x128p12s6 225.00\n"));
  EXPECT_THAT(table, HasSubstr("\ntn p2 s3 w2 | 16384x5632x2048 | "));
  EXPECT_EQ(run_coda(command + Words{"h64"}).status, 1);  // others are to be timed

  // What somebody found by a long run comes first.
  folder.write("table.txt.jsonl",
               log + "\n" +
                   R"({"class":"tn p2 h64 s2 d2 w2","extents":"16384x1024x2048",)"
                   R"("long_run":"128x128p12s6"})");
  EXPECT_EQ(run_coda(command + Words{"w2 | 16384x1024x2048"}).status, 0);
  EXPECT_THAT(read_bytes(folder / "table.txt"),
              HasSubstr("\ntn p2 h64 s2 d2 w2 | 16384x1024x2048 | 128x128p12s6 218.22 "
                        "128x256c21s3 218.22\n"));
  EXPECT_THAT(run_coda(command + Words{"no such"}).err, HasSubstr("no kernel of the table has"));
}

// A tile has a time with each of its schedules. In less than 100 us all of a difference remains;
// what is within the noise of the fastest is what the model takes.
TEST(TableMaker, KnowsTheSchedulesOfATileApart) {
  const TestFolder folder;
  const std::string name = "tn p1 l1 s2 w1 rs";
  std::string log = "{\"measured_on\":\"some GPU\"}\n";
  const auto add = [&](int64_t k, const std::string& chosen, double cooperative) {
    const auto timed = [](const char* code, double microseconds) {
      return json{{"configuration", code}, {"microseconds", microseconds}};
    };
    log += json{{"class", name},
                {"extents", "1024x2048x" + std::to_string(k)},
                {"chosen", chosen},
                {"spaces", {{{"rows", 1024}, {"columns", 2048}, {"k", k}, {"parts", 1}}}},
                {"choices", {timed("128x128p12s6", 20.0), timed("128x128c12s5", cooperative)}}}
               .dump() +
           "\n";
  };
  add(2048, "128x128p12s6", 19.0);
  add(5632, "128x128p12s6", 19.8);
  add(8192, "128x128c12s5", 20.2);
  folder.write("table.txt.jsonl", log);
  const CommandResult result = run_coda({folder / "table.txt", "--benchmarks", kPrograms, "--cases",
                                         ", 1024 tokens", "--only", name + " | 1024x2048x"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("3 of 3 kernels"));
  const std::string table = read_bytes(folder / "table.txt");
  const auto row = [&](const std::string& rest) { return "\n" + name + " | 1024x2048x" + rest; };
  EXPECT_THAT(table, HasSubstr(row("2048 | 128x128c12s5 19.00 128x128p12s6 20.00\n")));
  EXPECT_THAT(table, HasSubstr(row("5632 | 128x128p12s6 19.80 128x128c12s5 19.80\n")));
  EXPECT_THAT(table, HasSubstr(row("8192 | 128x128c12s5 20.00 128x128p12s6 20.00\n")));
}

// At the sizes of the table and beyond them. Of products only: nothing else has a configuration.
// One text for all sizes and names. Beyond them a first choice may spill: then the next is taken.
TEST(ShippedTable, LeadsToKernelsWithoutADefect) {
  const auto compiler = gpu::find_nvrtc();
  const gpu::CleanKernels clean = gpu::known_clean_kernels();
  const bool is_recording = std::getenv("CODA_RECORD_KERNELS") != nullptr;
  std::mutex mutex;
  std::map<std::string, gpu::CompiledKernel> compiled;  // by digest
  const auto spilled_bytes = [&](const std::string& source) -> int64_t {
    if (!compiler) return 0;
    const std::string digest = gpu::digest_of_kernel(*compiler, source);
    if (const int64_t known = clean.spilled_bytes(digest); known >= 0 && !is_recording)
      return known;
    {
      const std::lock_guard lock(mutex);
      if (const auto found = compiled.find(digest); found != compiled.end())
        return found->second.spilled_bytes();
    }
    gpu::CompiledKernel kernel = compiler->compile(source);
    const int64_t spilled = kernel.spilled_bytes();
    const std::lock_guard lock(mutex);
    const bool is_new = compiled.emplace(digest, std::move(kernel)).second;
    if (is_new && spilled > 0) gpu::record_kernel(digest, spilled);
    return spilled;
  };
  std::vector<measure::TuneJob> jobs;
  for (const int64_t tokens : {1024, 4096, 16384, 65536}) {
    for (measure::TuneJob& job : table::jobs_of(table::model_cases(tokens), "", true))
      jobs.push_back(std::move(job));
  }
  std::set<std::string> sources;
  gpu::parallel_for(jobs.size(), 0, [&](size_t i) {
    const gpu::GemmProgram program(gpu::without_names(jobs[i].program), jobs[i].sizes,
                                   jobs[i].options);
    std::string source = measure::without_comments(
        gpu::make(program.planned(jobs[i].kernel), spilled_bytes).launch.source);
    const std::lock_guard lock(mutex);
    sources.insert(std::move(source));
  });
  EXPECT_GE(sources.size(), 150U);
  // What was compiled to learn of spills is not compiled again.
  std::erase_if(sources, [&](const std::string& source) {
    if (!compiler) return false;
    const auto found = compiled.find(gpu::digest_of_kernel(*compiler, source));
    if (found == compiled.end()) return false;
    EXPECT_EQ(found->second.defect, "") << found->second.log << "\n" << source;
    if (found->second.defect.empty()) gpu::record_kernel(found->first, 0);
    return true;
  });
  gpu::expect_no_defects(sources);
}

}  // namespace
}  // namespace coda
