// SPDX-License-Identifier: Apache-2.0
// coda derive: writes the backward of programs as programs, and of a graph as a graph, for reading,
// editing and checking.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <variant>

#include "coda/error.h"
#include "coda/graph_request.h"
#include "coda/lift.h"
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
  std::vector<std::string> gradients;  // names of inputs; empty: all with a gradient
  std::string dtype;                   // empty: the type that GEMMs of the programs read
  std::string objective = "memory";
  std::string out;
};

// Plans are compared at some sizes; symbols without a size get this one.
constexpr int64_t kUsualSize = 2048;

struct Derived {
  // Empty: the given programs store every tensor that `backward` reads.
  std::vector<Program> forward;
  std::vector<Program> backward;
  std::vector<std::string> remarks;
};

// A scalar that programs raise to a largest magnitude. `of`: the plan's output whose magnitude it
// is.
struct Magnitude {
  std::string scalar;
  std::string of;
};

std::string listed_names(const std::set<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

std::vector<Program> programs_of(const std::vector<PlanStep>& steps,
                                 std::vector<std::string>& remarks) {
  std::vector<Program> programs;
  for (const PlanStep& step : steps) {
    if (const auto* program = std::get_if<Program>(&step.work)) {
      programs.push_back(*program);
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

// The owner of a view; else the tensor itself.
std::string viewed(const Plan& plan, const std::string& name) {
  const std::string& of = plan.tensor(name).view_of;
  return of.empty() ? name : viewed(plan, of);
}

// The tensors that programs read or store; `how` selects which.
std::set<std::string> named_by(const std::vector<Program>& programs, bool StepTensor::* how) {
  std::set<std::string> names;
  for (const Program& program : programs) {
    const Plan plan = one_step_plan(program);
    for (const StepTensor& t : step_tensors(plan.forward.front())) {
      if (t.*how) names.insert(t.name);
    }
  }
  return names;
}

// ---- What is lifted: values whose gradient is requested, and magnitudes ----

// For each node, whether `value` is computed from it.
std::vector<bool> made_from(const Graph& graph, int value) {
  std::vector<bool> reached(static_cast<size_t>(graph.size()), false);
  reached[static_cast<size_t>(value)] = true;
  for (int id = value; id >= 0; --id) {
    if (!reached[static_cast<size_t>(id)]) continue;
    for (const int operand : graph.node(id).operands) reached[static_cast<size_t>(operand)] = true;
  }
  return reached;
}

// Turns requested stored values into inputs, so that they have gradients. The programs compute
// these values; the backward does not continue beyond them.
void cut(Graph& graph, const LiftedTensors& tensors, const std::vector<std::string>& wanted) {
  const auto value_named = [&](const std::string& name) {
    const auto found = tensors.values.find(name);
    return found == tensors.values.end() ? graph.find_input(name) : found->second.id;
  };
  std::vector<std::pair<int, std::string>> stored;
  for (const std::string& name : wanted) {
    const int id = value_named(name);
    if (id < 0 || graph.node(id).op == Op::input) continue;
    const std::vector<bool> reached = made_from(graph, id);
    for (const std::string& other : wanted) {
      const int of = value_named(other);
      require(of < 0 || of == id || !reached[static_cast<size_t>(of)],
              "--gradients: " + name + " is made from " + other +
                  ": derive the gradient of one at a time, in two calls");
    }
    stored.emplace_back(id, name);
  }
  for (const auto& [id, name] : stored) graph.become_input(id, name);
}

// The values whose largest magnitude a raised scalar is. The scalar is computed from the largest
// magnitudes of their rows.
void find_magnitudes(const Graph& graph, int id, std::set<int>& seen, std::vector<int>& found) {
  if (!seen.insert(id).second) return;
  const Node& n = graph.node(id);
  if (n.op == Op::row_reduce && n.reduction == PartialKind::abs_max) {
    found.push_back(n.operands[0]);
    return;
  }
  for (const int operand : n.operands) find_magnitudes(graph, operand, seen, found);
}

// Removes the scalars that programs raise from the lifted tensors: they are statistics and have no
// gradient.
std::vector<std::pair<Magnitude, Value>> take_magnitudes(const std::vector<Program>& programs,
                                                         Graph& graph, LiftedTensors& tensors) {
  std::vector<std::pair<Magnitude, Value>> all;
  for (const Program& program : programs) {
    for (const Step& step : program.steps) {
      if (step.kind() != StepKind::abs_max_into) continue;
      const std::string& name = program.tensors[static_cast<size_t>(step.tensor())].name;
      const auto lifted = tensors.values.find(name);
      if (lifted == tensors.values.end()) continue;  // an earlier step raises the same scalar
      std::set<int> seen;
      std::vector<int> found;
      find_magnitudes(graph, lifted->second.id, seen, found);
      tensors.values.erase(lifted);
      for (const int id : found)
        all.push_back({{name, name + ".of" + (all.empty() ? "" : std::to_string(all.size()))},
                       graph.value(id)});
    }
  }
  return all;
}

// ---- The programs that replace the forward, with the types and names of the given ones ----

// The value that a store stores, before it is rounded to the plan's type.
int unrounded(const Program& program, int value) {
  const Step& step = program.steps[static_cast<size_t>(value)];
  return step.kind() == StepKind::as_stored ? step.operands[0] : value;
}

int tensor_named(const Program& program, const std::string& name) {
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    if (program.tensors[t].name == name) return static_cast<int>(t);
  }
  return -1;
}

// Removes values that no step uses, and tensors that no step mentions.
Program without_unused(const Program& program) {
  std::vector<bool> used(program.steps.size(), false);
  std::vector<bool> named(program.tensors.size(), false);
  for (size_t i = program.steps.size(); i-- > 0;) {
    const Step& step = program.steps[i];
    const bool is_effect =
        step.kind() == StepKind::store_tile || step.kind() == StepKind::store_vector ||
        step.kind() == StepKind::row_partial || step.kind() == StepKind::column_partial ||
        step.kind() == StepKind::store_transposed || step.kind() == StepKind::abs_max_into;
    used[i] = used[i] || is_effect;
    if (!used[i]) continue;
    for (const int operand : step.operands) used[static_cast<size_t>(operand)] = true;
    for (const GemmSegment& segment : step.segments()) {
      for (const int t : segment.tensors()) {
        if (t >= 0) named[static_cast<size_t>(t)] = true;
      }
    }
    for (const int t : {step.tensor(), step.row_index()}) {
      if (t >= 0) named[static_cast<size_t>(t)] = true;
    }
  }
  std::vector<int> place(program.steps.size(), -1);
  std::vector<int> tensor(program.tensors.size(), -1);
  Program result{program.name, {}, {}};
  for (size_t t = 0; t < named.size(); ++t) {
    if (!named[t]) continue;
    tensor[t] = static_cast<int>(result.tensors.size());
    result.tensors.push_back(program.tensors[t]);
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    place[i] = static_cast<int>(result.steps.size());
    Step step = program.steps[i];
    for (int& operand : step.operands) operand = place[static_cast<size_t>(operand)];
    const auto renumber = [&](int& t) {
      if (t >= 0) t = tensor[static_cast<size_t>(t)];
    };
    std::visit(
        [&](auto& work) {
          if constexpr (requires { work.tensor; }) renumber(work.tensor);
          if constexpr (requires { work.row_index; }) renumber(work.row_index);
          if constexpr (requires { work.segments; }) {
            for (GemmSegment& segment : work.segments) {
              for (int* t : {&segment.a, &segment.b, &segment.scales_a, &segment.scales_b})
                renumber(*t);
            }
          }
        },
        step.work);
    result.steps.push_back(std::move(step));
  }
  return result;
}

// If the program stores `name`, adds an effect of this kind on the same value. Then removes the
// store unless it `stays`.
void add_store_of_same_value(Program& program, const std::string& name, const TensorDecl& target,
                             StepKind kind, bool stays) {
  const int stored = tensor_named(program, name);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    Step& store = program.steps[i];
    if (store.kind() != StepKind::store_tile || store.tensor() != stored) continue;
    int tensor = tensor_named(program, target.name);
    if (tensor < 0) {
      tensor = static_cast<int>(program.tensors.size());
      program.tensors.push_back(target);
    }
    Step added = store;
    added.operands = {unrounded(program, store.operands[0])};
    if (kind == StepKind::abs_max_into) {
      added.work = steps::AbsMaxInto{tensor};
    } else {
      added.work = steps::StoreTile{tensor};
    }
    if (stays) {
      program.steps.push_back(std::move(added));
    } else {
      store = std::move(added);
    }
    program = without_unused(program);
    return;
  }
}

// Stores in 8 bits keep the type that the given programs have, and magnitudes keep their name. If a
// derived program reads such a tensor, the tensor is also stored in the plan's type.
void keep_eight_bits(Derived& derived, const std::vector<Program>& given,
                     const std::vector<Magnitude>& magnitudes) {
  std::vector<Program> all = derived.forward;
  all.insert(all.end(), derived.backward.begin(), derived.backward.end());
  const std::set<std::string> read = named_by(all, &StepTensor::read);
  std::set<std::string> renamed;
  for (const Program& of : given) {
    for (const Step& step : of.steps) {
      if (step.kind() != StepKind::store_tile) continue;
      const TensorDecl& decl = of.tensors[static_cast<size_t>(step.tensor())];
      if (size_of(decl.dtype) != 1) continue;
      const bool stays = read.contains(decl.name);
      const std::string kept = stays ? decl.name + ".saved" : decl.name;
      for (auto* group : {&derived.forward, &derived.backward}) {
        for (Program& program : *group) {
          const int t = tensor_named(program, decl.name);
          if (t >= 0 && stays) program.tensors[static_cast<size_t>(t)].name = kept;
        }
      }
      for (Program& program : derived.forward) {
        const int t = tensor_named(program, kept);
        if (t >= 0 && !stays) program.tensors[static_cast<size_t>(t)].dtype = decl.dtype;
        add_store_of_same_value(program, kept, decl, StepKind::store_tile, stays);
      }
    }
  }
  for (const Magnitude& magnitude : magnitudes) {
    for (Program& program : derived.forward)
      add_store_of_same_value(program, magnitude.of, {.name = magnitude.scalar, .shape = {}},
                              StepKind::abs_max_into, read.contains(magnitude.of));
  }
}

Derived derived_from(const ExplainedPlan& plan, const std::vector<Program>& given,
                     bool has_all_gradients) {
  const CompileRequest& request = plan.source.request;
  Derived result;
  result.backward = programs_of(plan.compiled.plan.backward, result.remarks);
  const std::set<std::string> stored = named_by(given, &StepTensor::written);
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

// Tensors that the given programs mention keep the type that the given programs have.
void keep_types(std::vector<Program>& derived, const std::vector<Program>& given) {
  std::map<std::string, DType> types;
  for (const Program& program : given) {
    for (const TensorDecl& decl : program.tensors) types[decl.name] = decl.dtype;
  }
  for (Program& program : derived) {
    for (const StepTensor& t : step_tensors(one_step_plan(program).forward.front())) {
      if (t.read && !t.written && types.contains(t.name))
        program.tensors[static_cast<size_t>(tensor_named(program, t.name))].dtype =
            types.at(t.name);
    }
  }
}

// Numbers the files, so that FOLDER/*.coda lists them in execution order.
void write_programs(const Derived& derived, const std::filesystem::path& folder) {
  int number = 0;
  for (const auto* group : {&derived.forward, &derived.backward}) {
    for (const Program& program : *group) {
      const std::filesystem::path file =
          folder / fmt::format("{:02}_{}.coda", ++number, program.name);
      write_program(file, program);
      fmt::print("{}\n", printable(file));
    }
  }
}

// The backward of a graph is a graph.
void derive(const NamedGraph& graph, const DeriveFlags& flags) {
  require(
      flags.sizes.empty() && flags.dtype.empty() && flags.objective == "memory",
      "--sizes, --dtype and --objective apply to programs only, and this file is a graph; leave "
      "them out");
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
  const std::vector<Program> given = read_programs_stored_as(flags.programs, "");
  DimValues sizes = parse_sizes(flags.sizes);
  refuse_other_sizes(given, sizes);
  for (const Program& program : given) {
    for (const std::string& symbol : symbols_of(program)) sizes.try_emplace(symbol, kUsualSize);
  }
  std::vector<Magnitude> magnitudes;
  const auto derived_with = [&](bool with_magnitudes) {
    ExplainedGraph source =
        load_programs(flags.programs, sizes, true, [&](Graph& graph, LiftedTensors& tensors) {
          cut(graph, tensors, flags.gradients);
          std::vector<NamedValue> outputs;
          magnitudes.clear();
          for (const auto& [magnitude, value] : take_magnitudes(given, graph, tensors)) {
            magnitudes.push_back(magnitude);
            if (with_magnitudes) outputs.push_back({magnitude.of, value, DType::f32});
          }
          return outputs;
        });
    if (!flags.dtype.empty()) source.options.storage = storage_type(flags.dtype);
    source.options.objective = flags.objective == "speed" ? Objective::speed : Objective::memory;
    require(!source.request.seeds.empty(),
            flags.programs.front() +
                ": nothing can be derived: no stored value depends on an input with a gradient");
    keep_gradients(source, flags.gradients);
    return derived_from(explain(std::move(source)), given, flags.gradients.empty());
  };
  Derived derived = derived_with(false);
  // Only programs that replace the forward must compute magnitudes.
  if (!derived.forward.empty() && !magnitudes.empty()) derived = derived_with(true);
  keep_types(derived.backward, given);
  if (!derived.forward.empty()) keep_eight_bits(derived, given, magnitudes);
  for (const Magnitude& magnitude : magnitudes)
    derived.remarks.push_back(magnitude.scalar + " is a largest magnitude, which has no gradient");
  if (!flags.out.empty()) write_programs(derived, flags.out);
  for (const std::string& remark : derived.remarks) fmt::print("# {}\n", remark);
  if (!flags.out.empty()) return;
  fmt::print("# chosen for{}\n", text_of(sizes));
  for (const Program& program : derived.forward) fmt::print("\n{}", text(program));
  if (!derived.forward.empty()) fmt::print("\n# the backward\n");
  for (const Program& program : derived.backward) fmt::print("\n{}", text(program));
}

}  // namespace

void add_derive(CLI::App& app) {
  auto flags = std::make_shared<DeriveFlags>();
  CLI::App& command =
      *app.add_subcommand("derive",
                          "The backward of programs, as programs: from the gradients of the stored "
                          "tensors to the gradients of the inputs");
  command
      .add_option(
          "programs", flags->programs,
          "Files of programs (.coda), in the order in which they run, or the file of a graph")
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
                  "The inputs or stored values to derive gradients of: x,w [all inputs that have "
                  "one]")
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
          "--objective", flags->objective,
          "memory: the backward recomputes cheap values; speed: such values are stored if that "
          "takes less time")
      ->check(CLI::IsMember({"memory", "speed"}))
      ->capture_default_str();
  command
      .add_option(
          "--out", flags->out,
          "A folder for the programs, a file each, numbered; files of these names are replaced "
          "[print them]")
      ->type_name("FOLDER");
  command.callback([flags] { run(*flags); });
}

}  // namespace coda::tools
