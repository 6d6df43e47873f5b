// SPDX-License-Identifier: Apache-2.0
// coda compile: fills the cache of kernels ahead, for a machine with a GPU; none is needed here.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "coda/error.h"
#include "commands.h"
#include "hopper/kernel_builder.h"
#include "hopper/kernel_names.h"
#include "hopper/parallel_for.h"
#include "hopper/tuned_file.h"
#include "measure/tune.h"
#include "model_programs.h"
#include "table_cases.h"

namespace coda::tools {
namespace {

struct CompileFlags {
  ProgramFlags programs;
  unsigned threads = 0;
  uint32_t multiprocessors = 132;
  bool checks_table = false;
  bool as_json = false;
};

struct NamedSource {
  std::string program;
  std::string source;
};

class Sources {
 public:
  void add(const std::string& program, std::string source) {
    if (seen_.insert(source).second) all_.push_back({program, std::move(source)});
  }
  const std::vector<NamedSource>& all() const { return all_; }

 private:
  std::set<std::string> seen_;
  std::vector<NamedSource> all_;
};

Sources sources_of(const CompileFlags& flags) {
  Sources sources;
  const auto tuned =
      hopper::load_tuned_rows(hopper::latest_tuned_file(hopper::default_cache_folder()));
  const auto add = [&](const std::vector<SizedProgram>& programs) {
    for (SizedProgram one : programs) {
      one.options.tuned = tuned;
      one.options.multiprocessors = flags.multiprocessors;
      for (hopper::KernelLaunch& launch : hopper::lower(one.program, one.sizes, one.options))
        sources.add(one.program.name, std::move(launch.source));
    }
  };
  if (!flags.programs.is_model()) {
    add(flags.programs.programs());
    return sources;
  }
  const ModelPrograms model = flags.programs.of_model();
  add(model.programs);
  for (hopper::KernelLaunch& launch : opaque_launches(model))
    sources.add(launch.function, std::move(launch.source));
  return sources;
}

// Of products only: nothing else has a configuration. One text for all sizes and names.
Sources sources_of_table() {
  Sources sources;
  for (const int64_t tokens : {1024, 4096, 16384, 65536}) {
    for (const SizedProgram& one : table_programs(tokens)) {
      for (const measure::TuneJob& job : measure::tune_jobs(one.program, one.sizes, one.options)) {
        const hopper::GemmProgram program(hopper::without_names(job.program), job.sizes,
                                          job.options);
        const hopper::GemmChoice choice = program.chosen(job.kernel).choice;
        sources.add(job.name + " as " + hopper::text(choice),
                    measure::without_comments(program.emit(job.kernel, choice).source));
      }
    }
  }
  return sources;
}

void run(const CompileFlags& flags) {
  const auto begin = std::chrono::steady_clock::now();
  const Sources sources = flags.checks_table ? sources_of_table() : sources_of(flags);
  hopper::KernelBuilder builder;
  const std::string compiler = fmt::format("NVRTC {} at {}", builder.compiler().version().text(),
                                           builder.compiler().location());
  std::vector<std::string> defects(sources.all().size());
  hopper::parallel_for(sources.all().size(), flags.threads, [&](size_t i) {
    const NamedSource& one = sources.all()[i];
    const hopper::CompiledKernel kernel = builder.build(one.program, one.source);
    if (!kernel.defect.empty())
      defects[i] = "the kernel of program '" + one.program + "': " + kernel.defect;
  });
  std::erase(defects, "");
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string folder = builder.cache().folder().string();
  if (flags.as_json) {
    const nlohmann::ordered_json result{{"kernels", sources.all().size()},
                                        {"compiled", builder.cache().misses()},
                                        {"cached", builder.cache().hits()},
                                        {"seconds", seconds},
                                        {"folder", folder},
                                        {"compiler", compiler},
                                        {"defects", defects}};
    fmt::print("{}\n", result.dump(2));
  } else {
    fmt::print("{} kernel{} in {:.1f} s: {} compiled, {} were in the cache\n", sources.all().size(),
               sources.all().size() == 1 ? "" : "s", seconds, builder.cache().misses(),
               builder.cache().hits());
    fmt::print("in {}, with {}\n", folder.empty() ? "no folder: they are not kept" : folder,
               compiler);
    for (const std::string& defect : defects) fmt::print("slow: {}\n", defect);
  }
  require(
      !flags.checks_table || defects.empty(),
      fmt::format("{} kernels of the shipped table's configurations have defects", defects.size()));
}

}  // namespace

void add_compile(CLI::App& app) {
  auto flags = std::make_shared<CompileFlags>();
  CLI::App& command = *app.add_subcommand(
      "compile", "Fill the cache with the kernels of programs or of a model's step; needs no GPU");
  flags->programs.add_to(command);
  command.add_option("--threads", flags->threads, "At once [all cores]");
  command
      .add_option("--multiprocessors", flags->multiprocessors,
                  "Of the GPU that will run them: H100 and H200 have 132, the PCIe card 114")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_flag("--json", flags->as_json, "Print one JSON object");
  command
      .add_flag("--table", flags->checks_table,
                "All kernels that the shipped table leads to, which must have no defect")
      ->group("For the project");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
