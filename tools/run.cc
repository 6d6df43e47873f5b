// SPDX-License-Identifier: Apache-2.0
// coda run: runs programs or a graph on given inputs. See docs/checking.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "array_flags.h"
#include "coda/backend.h"
#include "coda/error.h"
#include "coda/messages.h"
#include "coda/run_graph.h"
#include "coda/run_programs.h"
#include "commands.h"
#include "device_flag.h"
#include "explained_plan.h"
#include "program_file.h"

namespace coda::tools {
namespace {

struct RunFlags {
  std::vector<std::string> files;
  std::vector<std::string> inputs;
  std::string out;
  std::vector<std::string> sizes;
  std::string storage;
  std::string device = "auto";
  std::string target;
};

void run(const RunFlags& flags) {
  const DimValues given = parse_sizes(flags.sizes);
  require_array_file(flags.out);
  const std::optional<NamedGraph> graph = read_lone_graph(flags.files, flags.storage);
  std::vector<Program> programs;
  if (graph) {
    refuse_other_sizes(*graph, given);
  } else {
    programs = read_programs_stored_as(flags.files, flags.storage);
    refuse_other_sizes(programs, given);
  }
  const Arrays inputs = graph ? read_all_arrays(flags.inputs,
                                                [&graph](const std::string& name) {
                                                  return graph->graph.find_input(name) >= 0;
                                                })
                              : read_all_arrays(flags.inputs, programs);
  const DimValues sizes =
      graph ? sizes_of_inputs(*graph, inputs, given) : sizes_of_inputs(programs, inputs, given);
  const bool is_named = flags.device == "cpu" || flags.device == "gpu";
  const auto backend = make_backend(is_named ? flags.device : "best", {.target = flags.target});
  const RunResult result = graph ? run_graph(*graph, sizes, inputs, *backend)
                                 : run_programs(programs, sizes, inputs, *backend);
  write_arrays(flags.out, result.results);
  fmt::print("on {} at{}\n", backend->is_on_host() ? "the CPU" : "the GPU",
             sizes.empty() ? " sizes as written" : text_of(sizes));
  for (const std::string& note : result.notes) fmt::print("{}\n", note);
  for (const ArrayToWrite& one : result.results)
    fmt::print("{}: {} {} {}\n", printable(flags.out), one.name, shape_text(one.array),
               name_of(one.dtype));
}

}  // namespace

void add_run(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App& command = *app.add_subcommand("run",
                                          "Runs programs, or a graph, on given inputs and writes "
                                          "the stored tensors; the inputs' shapes give the sizes");
  command
      .add_option(
          "programs", flags->files,
          "Files of programs (.coda), in the order in which they run, or the file of a graph")
      ->required()
      ->type_name("FILE");
  add_array_files(command, "--in", flags->inputs, "The inputs by the names of their tensors")
      ->required();
  command
      .add_option("--out", flags->out,
                  "The results (.npz, where bf16 is written as f32, or .safetensors); a file of "
                  "this name is replaced")
      ->required()
      ->type_name("FILE");
  command
      .add_option("--sizes", flags->sizes, "Sizes that the inputs' shapes do not give: M=256,N=512")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command
      .add_option("--storage", flags->storage,
                  "bf16 or f16: matrices without a type in the files are stored so [as written]")
      ->check(CLI::IsMember({"bf16", "f16"}));
  command
      .add_option("--device", flags->device,
                  "cpu, gpu, or auto: the GPU where there is one, else the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "gpu"}))
      ->capture_default_str();
  add_target(command, flags->target);
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
