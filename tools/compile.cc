// SPDX-License-Identifier: Apache-2.0
// coda compile: fills the kernel cache ahead of time for a machine with a GPU; needs no GPU itself.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "coda/kernels.h"
#include "commands.h"
#include "plan_flags.h"

namespace coda::tools {
namespace {

struct CompileFlags {
  ProgramFlags programs;
  unsigned threads = 0;
  uint32_t multiprocessors = 0;
  bool as_json = false;
};

void run(const CompileFlags& flags) {
  const auto begin = std::chrono::steady_clock::now();
  KernelOptions kernels = flags.programs.kernels();
  kernels.threads = flags.threads;
  if (flags.multiprocessors != 0) kernels.multiprocessors = flags.multiprocessors;
  const Precompiled all = precompile(flags.programs.plans(), kernels);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string folder = all.folder.string();
  if (flags.as_json) {
    const nlohmann::ordered_json result{{"kernels", all.kernels},
                                        {"compiled", all.compiled},
                                        {"cached", all.kernels - all.compiled},
                                        {"spilled", all.spilled},
                                        {"seconds", seconds},
                                        {"folder", folder},
                                        {"compiler", all.compiler},
                                        {"defects", all.defects}};
    fmt::print("{}\n", result.dump(2));
    return;
  }
  fmt::print("{} kernel{} in {:.1f} s: {} compiled, {} were in the cache\n", all.kernels,
             all.kernels == 1 ? "" : "s", seconds, all.compiled, all.kernels - all.compiled);
  if (all.spilled != 0)
    fmt::print("{} of them spill{} registers: other configurations took their place\n", all.spilled,
               all.spilled == 1 ? "s" : "");
  fmt::print("in {}, with {}\n", folder.empty() ? "no folder: they are not kept" : folder,
             all.compiler);
  for (const std::string& defect : all.defects) fmt::print("slow: {}\n", defect);
}

}  // namespace

void add_compile(CLI::App& app) {
  auto flags = std::make_shared<CompileFlags>();
  CLI::App& command = *app.add_subcommand("compile",
                                          "Fills the kernel cache with the kernels of programs, or "
                                          "of a model's training step; needs no GPU");
  flags->programs.add_to(command);
  command.add_option("--threads", flags->threads, "Kernels compiled at once [all cores]");
  command
      .add_option("--multiprocessors", flags->multiprocessors,
                  "Multiprocessors of the GPU that will run the kernels: H100 and H200 have 132, "
                  "the PCIe card 114 [as the card of --gpu, else as the first of its kind]")
      ->check(CLI::Range(1, 1024));
  command.add_flag("--json", flags->as_json, "Print one JSON object");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
