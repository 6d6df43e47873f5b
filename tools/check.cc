// SPDX-License-Identifier: Apache-2.0
// coda check: whether a program is well formed, and whether the backends compute what it says: on
// random inputs against float64, at sizes that fill tiles and at ragged ones, with poisoned memory,
// and with the same bits whatever the configuration.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "coda/check.h"
#include "coda/device.h"
#include "coda/error.h"
#include "coda/mathematics.h"
#include "commands.h"
#include "explained_plan.h"
#include "program_file.h"

namespace coda::tools {
namespace {

struct CheckFlags {
  std::vector<std::string> files;
  std::vector<std::string> sizes;
  std::string backend;  // empty: all that there are
  std::string storage;  // of matrices that are fp32 in the files; empty: as they are
  size_t configurations = 4;
  uint64_t seed = 1;
  bool brief = false;
};

// Sizes that fill tiles, ragged ones, and ones smaller than any tile.
std::vector<DimValues> usual_sizes(const Program& program) {
  constexpr int64_t kRagged[] = {77, 131, 203, 67, 95, 149};
  std::vector<DimValues> all(3);
  int64_t i = 0;
  for (const std::string& symbol : symbols_of(program)) {
    all[0][symbol] = 128 + 64 * i;
    all[1][symbol] = kRagged[i % 6];
    all[2][symbol] = 1 + 7 * i;
    ++i;
  }
  if (i == 0) all.resize(1);
  return all;
}

void print_mathematics(const Program& program) {
  fmt::print("{}: well formed; {} tensors, {} steps\n", program.name, program.tensors.size(),
             program.steps.size());
  for (const std::string& line : mathematics(program)) fmt::print("  {}\n", line);
}

void run(const CheckFlags& flags) {
  const DimValues given = parse_sizes(flags.sizes);
  std::vector<Program> programs;
  for (const std::string& file : flags.files) {
    programs.push_back(read_program(file));
    if (flags.storage.empty()) continue;
    programs.back() =
        stored_as(std::move(programs.back()), flags.storage == "bf16" ? DType::bf16 : DType::f16);
  }
  refuse_other_sizes(programs, given);
  // A line is seen when it is written, also where the output is a file.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const std::string why = flags.backend == "cpu" ? "" : why_no_gpu();
  require(flags.backend != "gpu" || why.empty(), "--backend gpu: " + why);
  if (flags.backend != "cpu") fmt::print("{}\n", why.empty() ? describe_gpu() : "no GPU: " + why);
  const CheckOptions options{.backend = flags.backend == "gpu" ? "hopper" : flags.backend,
                             .configurations = flags.configurations,
                             .seed = flags.seed,
                             .says = [](const std::string& what) { fmt::print("  {}\n", what); }};
  bool is_right = true;
  bool is_refused = false;
  for (const Program& program : programs) {
    if (!flags.brief) fmt::print("\n");
    if (!flags.brief) print_mathematics(program);
    std::vector<DimValues> all = usual_sizes(program);
    if (!given.empty()) {
      require_sizes(program, given);
      all = {given};
    }
    fmt::print("{}{}", flags.brief ? "\n" : "", flags.brief ? program.name : "");
    for (const DimValues& sizes : all) {
      fmt::print("\nsizes{}\n", sizes.empty() ? " as written" : text_of(sizes));
      CheckReport report = check_program(program, sizes, options);
      for (CheckedBackend& backend : report.backends) {
        if (backend.name == "hopper") backend.name = "gpu";  // as --backend has it
        is_refused = is_refused || !backend.refused.empty();
        if (flags.storage.empty() && backend.refused.find("tensor cores") != std::string::npos)
          backend.refused += "; --storage bf16 checks it with matrices in bf16";
      }
      fmt::print("{}", text(report));
      is_right = is_right && report.is_right();
    }
  }
  if (!is_right) throw Error("a backend does not compute what the program says: see WRONG above");
  require(flags.backend != "gpu" || !is_refused,
          "--backend gpu: not all was checked: see refused above");
}

}  // namespace

void add_check(CLI::App& app) {
  auto flags = std::make_shared<CheckFlags>();
  CLI::App& command = *app.add_subcommand(
      "check",
      "Whether programs are well formed, and whether the backends compute what they say: random "
      "inputs against float64");
  command.add_option("programs", flags->files, "Files of programs (.coda)")
      ->required()
      ->type_name("FILE");
  command
      .add_option(
          "--sizes", flags->sizes,
          "Sizes of the programs' symbols, as in M=256,N=512 [sizes that fill tiles, ragged "
          "ones and tiny ones]")
      ->delimiter(',')
      ->type_name("LIST");
  command.add_option("--backend", flags->backend, "cpu or gpu [all that there are]")
      ->check(CLI::IsMember({"cpu", "gpu"}));
  command
      .add_option(
          "--storage", flags->storage,
          "bf16 or f16: matrices that are fp32 in the files are stored so, as products on a "
          "GPU need it [as written]")
      ->check(CLI::IsMember({"bf16", "f16"}));
  command
      .add_option("--configurations", flags->configurations,
                  "Ways to cut it into tiles whose bits are compared")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_option("--seed", flags->seed, "Of the inputs")->capture_default_str();
  command.add_flag("--brief", flags->brief, "Leave the mathematics out");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
