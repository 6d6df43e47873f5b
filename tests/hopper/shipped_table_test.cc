// SPDX-License-Identifier: Apache-2.0
// The shipped table's configurations, each with the longest kernel of the plans and of the
// benchmark's programs that the table gives it to: none spills, uses local memory or has its wgmma
// serialised. (All of its kernels: `coda compile --table`, minutes of processor time.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "hopper/gemm_program.h"
#include "hopper/gemm_programs.h"
#include "hopper/nvrtc.h"
#include "hopper/tuned_table.h"

namespace coda::hopper {
namespace {

// What the table takes first, by class.
std::map<std::string, std::set<std::string>> first_choices() {
  std::map<std::string, std::set<std::string>> choices;
  std::istringstream lines(tuned_table().text());
  for (std::string line; std::getline(lines, line);) {
    const size_t sizes = line.find(" | ");
    const size_t timed = line.find(" | ", sizes + 3) + 3;
    choices[line.substr(0, sizes)].insert(line.substr(timed, line.find(' ', timed) - timed));
  }
  return choices;
}

// Of a kind that the table is made of, and of few sizes: a kernel's text has none in it.
std::vector<SizedProgram> programs() {
  std::vector<SizedProgram> all;
  const auto add_plan = [&](PlanSource source, const LlamaSizes& sizes) {
    for (SizedProgram& one : gemm_programs(source, sizes, 16384, DType::bf16, Objective::memory,
                                           DType::f32, 2, /*accumulates=*/false))
      all.push_back(std::move(one));
  };
  for (const int64_t head_dim : {128, 64}) {
    add_plan(PlanSource::llama_model, {.hidden = 2048,
                                       .heads = 2048 / head_dim,
                                       .kv_heads = 512 / head_dim,
                                       .head_dim = head_dim,
                                       .mlp = 5632,
                                       .vocab = 32768,
                                       .sequence = 4096});
  }
  add_plan(PlanSource::gpt2_model, {.hidden = 1024,
                                    .heads = 16,
                                    .kv_heads = 16,
                                    .head_dim = 64,
                                    .mlp = 4096,
                                    .vocab = 50257,
                                    .sequence = 1024});
  const DimValues sizes{{"M", 16384}, {"N", 4096}, {"K", 4096}, {"S", 4096}};
  for (const auto& file :
       std::filesystem::directory_iterator(CODA_SOURCE_DIR "/bench/hopper_programs/programs")) {
    std::ifstream text(file.path());
    const Program program = parse_program(std::string(std::istreambuf_iterator<char>(text), {}));
    all.push_back({program.name, program, sizes, {}});
  }
  return all;
}

TEST(ShippedTable, EachConfigurationMakesItsLongestKernelWithoutADefect) {
  const auto choices = first_choices();
  std::map<std::string, std::string> longest;  // text by configuration
  for (const auto& [kind, codes] : choices)
    for (const std::string& code : codes) longest[code];
  for (const SizedProgram& one : programs()) {
    const GemmProgram program(one.program, one.sizes, one.options);
    for (size_t kernel = 0; kernel < program.kernels(); ++kernel) {
      const auto own = choices.find(program.class_of(kernel).name);
      if (own == choices.end()) continue;
      for (const RankedChoice& ranked : program.ranked(kernel)) {
        if (!own->second.contains(code(ranked.choice))) continue;
        std::string source = program.emit(kernel, ranked.choice).source;
        std::string& text = longest.at(code(ranked.choice));
        if (source.size() > text.size()) text = std::move(source);
      }
    }
  }
  std::set<std::string> texts;
  for (auto& [configuration, text] : longest) {
    EXPECT_NE(text, "") << configuration << " is of no kernel of these programs";
    texts.insert(std::move(text));
  }
  EXPECT_GE(texts.size(), 20U);
  expect_no_defects(texts);
}

}  // namespace
}  // namespace coda::hopper
