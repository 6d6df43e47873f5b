// SPDX-License-Identifier: Apache-2.0
// coda check: whether a program is valid, computes what its author means, and runs correctly on the
// backends; for a graph, whether its plan does (check_graph.h). See docs/checking.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "array_flags.h"
#include "check_graph.h"
#include "check_report.h"
#include "check_sizes.h"
#include "coda/check.h"
#include "coda/compare.h"
#include "coda/device.h"
#include "coda/error.h"
#include "coda/formula.h"
#include "coda/plan.h"
#include "coda/program_file.h"
#include "commands.h"
#include "device_flag.h"
#include "explained_plan.h"
#include "flag_values.h"
#include "formula_text.h"
#include "program_file.h"
#include "python_formula.h"

namespace coda::tools {
namespace {

struct CheckFlags {
  std::vector<std::string> files;
  std::vector<std::string> formulas;
  std::vector<std::string> inputs;  // files of arrays
  std::vector<std::string> expected;
  std::optional<double> tolerance;
  std::vector<std::string> backward_of;
  std::vector<std::string> sizes;
  std::string backend;  // empty: all available
  std::string target;
  std::string storage;  // of matrices that are fp32 in the files; empty: keep
  size_t configurations = 4;
  uint64_t seed = 1;
  bool backward = true;
  bool brief = false;
  bool json = false;
};

// The sizes of this program's symbols.
DimValues sizes_of(const Program& program, const DimValues& all) {
  DimValues sizes;
  for (const std::string& symbol : symbols_of(program)) sizes[symbol] = all.at(symbol);
  return sizes;
}

void check_formulas(const std::vector<Program>& programs, const std::vector<DimValues>& all,
                    const CheckFlags& flags, CheckOutput& output) {
  std::vector<Wanted> wanted;
  std::vector<std::string> lines;
  for (const std::string& formula : flags.formulas) {
    const auto function = python_function(formula);
    if (!function) lines.push_back(formula);
    if (function) {
      wanted.push_back(
          wanted_by(read_program_text(function->file), [&programs, function](const Arrays& known) {
            return call_python(*function, programs, known);
          }));
    }
  }
  if (!lines.empty()) {
    const std::string text = formula_text(lines);
    wanted.push_back(
        wanted_by(text, [text](const Arrays& known) { return evaluate_formula(text, known); }));
  }
  if (!wanted.empty())
    output.begin("the formula compared with the stored tensors, both in float64");
  for (const Wanted& one : wanted) {
    // Scaled inputs are compared only at the ragged sizes, because other sizes would find nothing
    // more.
    for (size_t i = 0; i < all.size(); ++i) {
      const bool scaled = i == std::min<size_t>(1, all.size() - 1);
      output.add(all[i], compare_with_function(programs, all[i], one, flags.seed, scaled));
    }
  }
}

// The error that rounding inputs and results to their types may cause; fp32's if all are fp32.
double usual_tolerance(const std::vector<Program>& programs) {
  double tolerance = 1e-5;
  for (const Program& program : programs) {
    for (const TensorDecl& decl : program.tensors)
      tolerance = std::max(tolerance, size_of(decl.dtype) == 1   ? 0.1
                                      : size_of(decl.dtype) == 2 ? 1e-2
                                                                 : 0);
  }
  return tolerance;
}

// Notes on what an author may not have intended: a tensor that is changed in place, and partials
// that no finalizer combines.
void add_notes(const std::vector<Program>& programs, CheckOutput& output) {
  std::map<std::string, const Program*> combined;
  for (const Program& program : programs) {
    for (const StepTensor& t : step_tensors(one_step_plan(program).forward.front())) {
      if (t.read && t.written)
        output.note(t.name + " is an input of " + program.name +
                    " and an output, in the same memory: a formula reads the old values");
    }
    for (const Step& step : program.steps) {
      if (step.kind() == StepKind::combine)
        combined[program.tensors[static_cast<size_t>(step.tensor())].name] = &program;
    }
  }
  for (const Program& program : programs) {
    for (const Step& step : program.steps) {
      const bool of_rows = step.kind() == StepKind::row_partial;
      if (!of_rows && step.kind() != StepKind::column_partial) continue;
      const TensorDecl& decl = program.tensors[static_cast<size_t>(step.tensor())];
      if (combined.contains(decl.name)) continue;
      const PartialInfo& kind = info(step.partial());
      const std::string result = kind.lanes == 1 ? "" : ", " + std::string(kind.whole());
      output.note(decl.name +
                  " holds partials, which no program here combines; add a "
                  "finalizer, a program after this one that combines them: store(r, combine_" +
                  (of_rows ? "rows(" : "columns(") + std::string(kind.name) + "(" + decl.name +
                  decl.shape.text() + ")" + result + "))");
    }
  }
}

void check_results(const std::vector<Program>& programs, const CheckFlags& flags,
                   const DimValues& given, CheckOutput& output) {
  if (flags.expected.empty()) return;
  const Arrays inputs = read_all_arrays(flags.inputs, programs);
  const DimValues sizes = sizes_of_inputs(programs, inputs, given);
  output.begin("the given results compared with the stored tensors, in float64");
  output.add(sizes, compare_with_results(programs, sizes, inputs,
                                         read_all_arrays(flags.expected, programs),
                                         flags.tolerance.value_or(usual_tolerance(programs))));
}

void check_as_backward(const std::vector<Program>& programs, const CheckFlags& flags,
                       const DimValues& given, CheckOutput& output) {
  if (flags.backward_of.empty()) return;
  const std::vector<Program> forward = read_programs_stored_as(flags.backward_of, flags.storage);
  std::vector<Program> all = programs;
  all.insert(all.end(), forward.begin(), forward.end());
  DimValues sizes = small_sizes(factors_of(all));
  for (const auto& [symbol, size] : given) sizes[symbol] = size;
  output.begin("the gradients compared with finite differences of the forward, both in float64");
  output.add(sizes, check_written_backward(forward, programs, sizes, flags.seed), false);
}

void check_backends(const Program& program, const std::vector<DimValues>& all,
                    const CheckOptions& options, const CheckFlags& flags, CheckOutput& output) {
  output.begin_backends(program.name);
  for (const DimValues& of_all : all) {
    const DimValues sizes = sizes_of(program, of_all);
    output.announce(sizes);
    CheckReport report = check_program(program, sizes, options);
    for (CheckedBackend& backend : report.backends) {
      if (flags.storage.empty() && backend.refused.find("tensor cores") != std::string::npos)
        backend.refused += "; --storage bf16 checks it with matrices in bf16";
    }
    output.add(sizes, report);
  }
}

void run(const CheckFlags& flags) {
  const DimValues given = parse_sizes(flags.sizes);
  if (const std::optional<NamedGraph> graph = read_lone_graph(flags.files, flags.storage)) {
    require(flags.formulas.empty() && flags.inputs.empty() && flags.expected.empty() &&
                flags.backward_of.empty(),
            "--formula, --in, --expect and --backward-of are of programs: a graph is what its plan "
            "is checked against; leave them out");
    check_graph(*graph, {.sizes = given,
                         .backend = flags.backend,
                         .target = flags.target,
                         .seed = flags.seed,
                         .backward = flags.backward,
                         .json = flags.json});
    return;
  }
  const std::vector<Program> programs = read_programs_stored_as(flags.files, flags.storage);
  refuse_other_sizes(programs, given);
  require(flags.inputs.empty() == flags.expected.empty(),
          "--in gives the inputs whose results --expect has: give both");
  std::vector<DimValues> all = usual_sizes(factors_of(programs));
  if (!given.empty() && flags.inputs.empty()) {
    for (const Program& program : programs) require_sizes(program, given);
    all = {given};
  }
  // Line buffering, so that lines appear at once even if the output is a file.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const std::string why = flags.backend == "cpu" ? "" : why_no_gpu();
  require(flags.backend != "gpu" || why.empty(), "--backend gpu: " + why);
  CheckOutput output(flags.json);
  if (flags.backend != "cpu") {
    output.device(why.empty() ? describe_gpu()
                              : "no GPU here: checked on the CPU alone; `coda info` says why");
  }
  for (const Program& program : programs) {
    if (!flags.brief) output.mathematics_of(program);
  }
  if (!flags.brief) add_notes(programs, output);
  check_formulas(programs, all, flags, output);
  check_results(programs, flags, given, output);
  check_as_backward(programs, flags, given, output);
  const CheckOptions options{.backend = flags.backend,
                             .target = flags.target,
                             .configurations = flags.configurations,
                             .seed = flags.seed,
                             .says = [&](const std::string& what) { output.says(what); }};
  for (const Program& program : programs) check_backends(program, all, options, flags, output);
  if (flags.backward) {
    output.begin("the derived backward");
    const DimValues sizes = given.empty() ? small_sizes(factors_of(programs)) : all.front();
    output.add(sizes, check_backward(programs, sizes, flags.seed), true);
  }
  output.end(flags.seed, flags.backend == "gpu");
}

}  // namespace

void add_check(CLI::App& app) {
  auto flags = std::make_shared<CheckFlags>();
  CLI::App& command =
      *app.add_subcommand("check",
                          "Checks programs on random inputs against float64: do they compute what "
                          "you mean (--formula), and do the backends compute them correctly?");
  command
      .add_option(
          "programs", flags->files,
          "Files of programs (.coda), in the order in which they run, or the file of a graph")
      ->required()
      ->type_name("FILE");
  command
      .add_option("--formula", flags->formulas,
                  "The value that a stored tensor should have, in NumPy's notation: \"out = silu(x "
                  "@ w.T)\"; or a file of such lines (.txt), or a Python function "
                  "(model.py:function). May be given several times")
      ->type_name("TEXT")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  add_array_files(command, "--in", flags->inputs, "Inputs for the results of --expect");
  add_array_files(command, "--expect", flags->expected, "Expected results for the inputs of --in");
  command
      .add_option(
          "--backward-of", flags->backward_of,
          "The forward (.coda): the programs are its backward, and the tensors grad_to_NAME or "
          "dNAME that they store are compared with finite differences. May be given several times")
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  command
      .add_option("--tolerance", flags->tolerance,
                  "The relative error that --expect allows [1e-5; 1e-2 where a tensor has 16 bits, "
                  "0.1 where it has 8]")
      ->check(number_within(0, 1e6));
  command
      .add_option(
          "--sizes", flags->sizes,
          "Sizes of the programs' symbols, as in M=256,N=512 [sizes that fill tiles, ragged "
          "ones and tiny ones]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  command.add_option("--backend", flags->backend, "cpu or gpu [all available]")
      ->check(CLI::IsMember({"cpu", "gpu"}));
  add_target(command, flags->target);
  command
      .add_option("--storage", flags->storage,
                  "bf16 or f16: matrices without a type in the files are stored so, because GEMMs "
                  "on a GPU need 16 bits [as written]")
      ->check(CLI::IsMember({"bf16", "f16"}));
  command
      .add_option("--configurations", flags->configurations,
                  "Number of tile configurations whose results must be bitwise equal")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_option("--seed", flags->seed, "Of the inputs")->capture_default_str();
  command.add_flag(
      "--backward,!--no-backward", flags->backward,
      "Whether the derived backward is compared with finite differences [it is compared]");
  command.add_flag("--brief", flags->brief, "Omit the mathematics");
  command.add_flag("--json", flags->json, "Print one JSON object");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
