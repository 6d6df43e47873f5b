// SPDX-License-Identifier: Apache-2.0
// coda derive: the backward of programs as programs, and of a graph as a graph, to be read, edited
// and checked.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <set>
#include <variant>

#include "coda/error.h"
#include "coda/graph_request.h"
#include "coda/messages.h"
#include "coda/program_file.h"
#include "commands.h"
#include "explained_plan.h"
#include "flag_values.h"
#include "program_file.h"

namespace coda::tools {
namespace {

struct DeriveFlags {
  std::vector<std::string> programs;
  std::vector<std::string> sizes;
  std::vector<std::string> gradients;  // names of inputs; empty: all that have one
  std::string dtype;                   // empty: as what products of the programs read
  std::string out;
};

// Plans are compared at some sizes: what the user leaves out is as large as a usual matrix.
constexpr int64_t kUsualSize = 2048;

struct Derived {
  std::vector<const Program*> forward;  // empty: the given programs store all that is read
  std::vector<const Program*> backward;
  std::vector<std::string> remarks;
};

std::string listed_names(const std::set<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

std::vector<const Program*> programs_of(const std::vector<PlanStep>& steps,
                                        std::vector<std::string>& remarks) {
  std::vector<const Program*> programs;
  for (const PlanStep& step : steps) {
    if (const auto* program = std::get_if<Program>(&step.work)) {
      programs.push_back(program);
    } else {
      const auto& call = std::get<OpaqueCall>(step.work);
      std::set<std::string> made(call.outputs.begin(), call.outputs.end());
      remarks.push_back("step " + step.name + ", which makes " + listed_names(made) +
                        ", is the operation " + call.function + ", which is no program");
    }
  }
  return programs;
}

// Keeps the gradients of the named inputs.
void keep_gradients(ExplainedGraph& source, const std::vector<std::string>& wanted) {
  if (wanted.empty()) return;
  std::vector<GradientRequest> kept;
  std::set<std::string> names;
  for (const GradientRequest& gradient : source.request.gradients)
    names.insert(source.get().node(gradient.input.id).name);
  for (const std::string& name : std::set<std::string>(wanted.begin(), wanted.end())) {
    require(names.contains(name), "--gradients: no gradient flows to " + in_quotes(name) +
                                      "; those of " + listed_names(names) + " can be derived");
    for (const GradientRequest& gradient : source.request.gradients) {
      if (source.get().node(gradient.input.id).name == name) kept.push_back(gradient);
    }
  }
  source.request.gradients = std::move(kept);
}

// The tensors that steps read.
std::set<std::string> read_by(const std::vector<PlanStep>& steps) {
  std::set<std::string> read;
  for (const PlanStep& step : steps) {
    for (const StepTensor& t : step_tensors(step)) {
      if (t.read) read.insert(t.name);
    }
  }
  return read;
}

// What a tensor is a view of, or itself.
std::string viewed(const Plan& plan, const std::string& name) {
  const std::string& of = plan.tensor(name).view_of;
  return of.empty() ? name : viewed(plan, of);
}

// The tensors that programs store.
std::set<std::string> stored_by(const std::vector<const Program*>& programs) {
  std::set<std::string> stored;
  for (const Program* program : programs) {
    const Plan plan = one_step_plan(*program);
    for (const StepTensor& t : step_tensors(plan.forward.front())) {
      if (t.written) stored.insert(t.name);
    }
  }
  return stored;
}

Derived derived_from(const ExplainedPlan& plan, const std::vector<Program>& given,
                     bool has_all_gradients) {
  const CompileRequest& request = plan.source.request;
  Derived result;
  result.backward = programs_of(plan.compiled.plan.backward, result.remarks);
  std::vector<const Program*> own;
  for (const Program& program : given) own.push_back(&program);
  const std::set<std::string> stored = stored_by(own);
  std::set<std::string> made;
  std::set<std::string> read;
  for (const std::string& name : read_by(plan.compiled.plan.backward))
    read.insert(viewed(plan.compiled.plan, name));
  std::set<std::string> gradients;
  for (const SeededOutput& seed : request.seeds) {
    const std::string& name = plan.source.get().node(seed.cotangent.id).name;
    if (read.contains(name)) {
      gradients.insert(name);
      continue;
    }
    result.remarks.push_back("no program reads " + name + ": what it is the gradient of " +
                             (has_all_gradients ? "changes with no input, but for jumps"
                                                : "does not lead to the inputs of --gradients"));
  }
  for (const PlanTensor& t : plan.compiled.plan.tensors) {
    if (t.role == TensorRole::saved && t.view_of.empty() && !stored.contains(t.decl.name))
      made.insert(t.decl.name);
    if (!t.view_of.empty())
      result.remarks.push_back(
          t.transposed ? t.decl.name + " is the vector " + t.view_of + " read along the other way"
                       : t.decl.name + " is " + t.decl.shape.cols.text() + " columns of " +
                             t.view_of + ", from column " + t.column_offset.text());
  }
  result.remarks.push_back("given: the forward's tensors, and the gradients " +
                           listed_names(gradients));
  if (!made.empty()) {
    result.remarks.push_back("the backward reads " + listed_names(made) +
                             ", so these programs take the place of the forward");
    result.forward = programs_of(plan.compiled.plan.forward, result.remarks);
  }
  return result;
}

// Numbered, so that FOLDER/*.coda names them in the order in which they run.
void write_programs(const Derived& derived, const std::filesystem::path& folder) {
  int number = 0;
  for (const auto* group : {&derived.forward, &derived.backward}) {
    for (const Program* program : *group) {
      const std::filesystem::path file =
          folder / fmt::format("{:02}_{}.coda", ++number, program->name);
      write_program(file, *program);
      fmt::print("{}\n", printable(file));
    }
  }
}

// The backward of a graph is a graph.
void derive(const NamedGraph& graph, const DeriveFlags& flags) {
  require(
      flags.sizes.empty() && flags.dtype.empty(),
      "--sizes and --dtype are of programs, whose plans are compared: the backward of a graph is "
      "a graph, which needs neither; leave them out");
  const NamedGraph backward = gradient_graph(graph, flags.gradients);
  if (flags.out.empty()) {
    fmt::print("{}", text(backward));
    return;
  }
  const std::filesystem::path file = std::filesystem::path(flags.out) / (backward.name + ".coda");
  write_program_text(file, text(backward));
  fmt::print("{}\n", printable(file));
}

void run(const DeriveFlags& flags) {
  if (const std::optional<NamedGraph> graph = read_lone_graph(flags.programs))
    return derive(*graph, flags);
  std::vector<Program> given;
  for (const std::string& file : flags.programs) given.push_back(read_program(file));
  DimValues sizes = parse_sizes(flags.sizes);
  refuse_other_sizes(given, sizes);
  for (const Program& program : given) {
    for (const std::string& symbol : symbols_of(program)) sizes.try_emplace(symbol, kUsualSize);
  }
  ExplainedGraph source = load_programs(flags.programs, sizes, true);
  if (!flags.dtype.empty()) source.options.storage = storage_type(flags.dtype);
  require(!source.request.seeds.empty(),
          flags.programs.front() +
              ": nothing can be derived: no stored value depends on an input with a gradient");
  keep_gradients(source, flags.gradients);
  const ExplainedPlan plan = explain(std::move(source));
  const Derived derived = derived_from(plan, given, flags.gradients.empty());
  if (!flags.out.empty()) write_programs(derived, flags.out);
  for (const std::string& remark : derived.remarks) fmt::print("# {}\n", remark);
  if (!flags.out.empty()) return;
  fmt::print("# chosen for{}\n", text_of(sizes));
  for (const Program* program : derived.forward) fmt::print("\n{}", text(*program));
  if (!derived.forward.empty()) fmt::print("\n# the backward\n");
  for (const Program* program : derived.backward) fmt::print("\n{}", text(*program));
}

}  // namespace

void add_derive(CLI::App& app) {
  auto flags = std::make_shared<DeriveFlags>();
  CLI::App& command = *app.add_subcommand("derive",
                                          "The backward of programs as programs: the gradients of "
                                          "all that they read, from those of all "
                                          "that they store");
  command
      .add_option("programs", flags->programs,
                  "Files of programs (.coda), one behind the other, or of a graph")
      ->required()
      ->type_name("FILE");
  command
      .add_option("--sizes", flags->sizes,
                  "Sizes at which plans are compared: M=2048,D=576 [2048 for each that is left "
                  "out]")
      ->delimiter(',')
      ->type_name("LIST");
  command
      .add_option("--gradients", flags->gradients,
                  "The inputs whose gradients are wanted: x,w [all that have one]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command
      .add_option("--dtype", flags->dtype,
                  "Storage of what the backward adds: fp32 or bf16 [16 bits where a product of the "
                  "programs reads them, else fp32]")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  command
      .add_option(
          "--out", flags->out,
          "A folder for the programs, a file each, numbered; files of these names are replaced "
          "[print them]")
      ->type_name("FOLDER");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
