// SPDX-License-Identifier: Apache-2.0
// From graphs and programs to plans, and plans as text.
#include "coda/plan.h"

#include <algorithm>

#include "bindings.h"
#include "coda/compile.h"
#include "coda/eight_bits.h"
#include "coda/error.h"
#include "coda/kernels.h"
#include "coda/language.h"
#include "coda/lift.h"
#include "coda/plan_cost.h"
#include "coda/rates.h"
#include "coda/split_plan.h"
#include "coda/tune.h"

namespace coda::python {
namespace {

using Named = std::pair<std::string, GraphValue>;
using Seed = std::pair<GraphValue, GraphValue>;
using Gradient = std::tuple<GraphValue, std::string, std::string>;  // input, name, type

Value of(const Graph& graph, const GraphValue& value) {
  require(value.graph.get() == &graph, "compile: a value is of another graph");
  return value.value();
}

Objective objective_of(const std::string& name) {
  require(name == "memory" || name == "speed",
          "compile: objective '" + name + "' is neither 'memory' nor 'speed'");
  return name == "memory" ? Objective::memory : Objective::speed;
}

CompileRequest request_of(const Graph& graph, const std::vector<Named>& outputs,
                          const std::vector<Seed>& seeds, const std::vector<Gradient>& gradients) {
  CompileRequest request;
  for (const auto& [name, value] : outputs) request.outputs.push_back({name, of(graph, value)});
  for (const auto& [value, cotangent] : seeds)
    request.seeds.push_back({of(graph, value), of(graph, cotangent)});
  for (const auto& [value, name, dtype] : gradients)
    request.gradients.push_back({of(graph, value), name, dtype_of(dtype)});
  return request;
}

void for_backend(CompileOptions& options, bool for_gpu) {
  if (for_gpu) options.rates = h200_rates();
  options.aligns_outputs = for_gpu;
}

Plan compile_graph(const std::shared_ptr<Graph>& graph, const std::vector<Named>& outputs,
                   const std::vector<Seed>& seeds, const std::vector<Gradient>& gradients,
                   const PythonSizes& sizes, const std::string& storage,
                   const std::string& objective, int64_t loss_rows, bool fuse, bool for_gpu) {
  const CompileRequest request = request_of(*graph, outputs, seeds, gradients);
  CompileOptions options;
  options.objective = objective_of(objective);
  options.sizes = sizes_of(sizes);
  options.storage = dtype_of(storage);
  options.loss_rows = loss_rows;
  options.fuse = fuse;
  for_backend(options, for_gpu);
  const nb::gil_scoped_release released;
  return compile(*graph, request, options).plan;
}

std::pair<Plan, std::vector<float>> compile_in_eight_bits(
    const std::shared_ptr<Graph>& graph, const std::vector<Named>& outputs,
    const std::vector<Seed>& seeds, const std::vector<Gradient>& gradients,
    const PythonSizes& sizes, const std::string& products, const std::string& objective,
    int64_t loss_rows, bool for_gpu) {
  const CompileRequest request = request_of(*graph, outputs, seeds, gradients);
  CompileOptions options;
  options.objective = objective_of(objective);
  options.sizes = sizes_of(sizes);
  options.storage = DType::bf16;
  options.loss_rows = loss_rows;
  options.eight_bits = eight_bits_of(products);
  std::string names;
  for (const std::string& name : eight_bits_names())
    names += (names.empty() ? "'" : ", '") + name + "'";
  require(options.eight_bits != EightBits::none,
          "products in 8 bits are one of " + names + ", not '" + products + "'");
  for_backend(options, for_gpu);
  const nb::gil_scoped_release released;
  Compiled compiled = compile(*graph, request, options);
  return {std::move(compiled.plan), std::move(compiled.first_scales)};
}

const char* role_name(TensorRole role) {
  switch (role) {
    case TensorRole::input: return "input";
    case TensorRole::parameter: return "parameter";
    case TensorRole::output: return "output";
    case TensorRole::saved: return "saved";
    case TensorRole::temporary: return "temporary";
  }
  throw InternalError("a tensor of unknown role");
}

const char* kind_name(TensorKind kind) {
  switch (kind) {
    case TensorKind::dense: return "dense";
    case TensorKind::row_partial: return "row_partial";
    case TensorKind::column_partial: return "column_partial";
  }
  throw InternalError("a tensor of unknown kind");
}

// What Python needs to make a tensor of the plan in sizes that it may not know yet.
struct TensorInfo {
  std::string name, role, dtype, kind;
  int lanes = 1;
  Shape shape;
  bool is_read = false;  // before a step writes it
};

// The tensors that are the caller's, in the plan's order.
std::vector<TensorInfo> callers_tensors(const Plan& plan) {
  std::vector<TensorInfo> tensors;
  for (const PlanTensor& tensor : plan.tensors) {
    if (!tensor.view_of.empty() || tensor.role == TensorRole::saved ||
        tensor.role == TensorRole::temporary)
      continue;
    tensors.push_back({tensor.decl.name, role_name(tensor.role),
                       std::string(name_of(tensor.decl.dtype)), kind_name(tensor.decl.kind),
                       tensor.decl.lanes, tensor.decl.shape});
    bool is_written = false;
    for (const PlanStep& step : plan.forward)
      for (const StepTensor& use : step_tensors(step)) {
        if (use.name != tensor.decl.name) continue;
        tensors.back().is_read |= use.read && !is_written;
        is_written |= use.written;
      }
  }
  return tensors;
}

std::vector<std::string> program_texts(const Plan& plan) {
  std::vector<std::string> texts;
  for (const auto* phase : {&plan.forward, &plan.backward})
    for (const PlanStep& step : *phase)
      if (const auto* program = std::get_if<Program>(&step.work)) texts.push_back(text(*program));
  return texts;
}

void bind_tensor_info(nb::module_& module) {
  nb::class_<TensorInfo>(module, "TensorInfo", "A tensor of a plan that the caller gives.")
      .def_ro("name", &TensorInfo::name)
      .def_ro("role", &TensorInfo::role, "'input', 'parameter' or 'output'")
      .def_ro("dtype", &TensorInfo::dtype, "'f32', 'bf16', ...: a type of docs/program-text.md")
      .def_ro("kind", &TensorInfo::kind, "'dense', 'row_partial' or 'column_partial'")
      .def_ro("lanes", &TensorInfo::lanes, "of a partial")
      .def_ro("is_read", &TensorInfo::is_read, "before a step writes it")
      .def_prop_ro(
          "rows", [](const TensorInfo& t) { return terms_of(t.shape.rows); },
          "a constant, and how often each symbol adds")
      .def_prop_ro("cols", [](const TensorInfo& t) { return terms_of(t.shape.cols); });
}

void bind_program(nb::module_& module) {
  nb::class_<Program>(module, "Program",
                      "One GEMM (or stored tensors) and its epilogue; text: docs/program-text.md.")
      .def_static("parse", &parse_program, nb::arg("text"), nb::arg("file") = "text",
                  "Throws Error with line and column for a wrong text.")
      .def_ro("name", &Program::name)
      .def("text", [](const Program& program) { return text(program); })
      .def("__str__", [](const Program& program) { return text(program); })
      .def("__eq__", [](const Program& a, const Program& b) { return a == b; })
      .def(
          "plan", [](const Program& program) { return one_step_plan(program); },
          "A plan of this one step.");
  module.def(
      "language",
      [] {
        const Language all = language();
        return std::map<std::string, std::vector<std::string_view>>{{"functions", all.functions},
                                                                    {"operations", all.operations},
                                                                    {"effects", all.effects},
                                                                    {"reductions", all.reductions},
                                                                    {"types", all.types}};
      },
      "The words of programs, from the tables that define them.");
  module.def(
      "lift",
      [](const std::vector<const Program*>& programs) {
        auto graph = std::make_shared<Graph>();
        LiftedTensors tensors;
        for (const Program* program : programs) lift(*program, *graph, tensors);
        std::map<std::string, GraphValue> outputs;
        for (const NamedValue& output : program_request(*graph, tensors, false).outputs)
          outputs.emplace(output.name, GraphValue{graph, output.value.id});
        std::map<std::string, GraphValue> inputs;
        for (int id = 0; id < graph->size(); ++id) {
          const Node& node = graph->node(id);
          if (node.op == Op::input) inputs.emplace(node.name, GraphValue{graph, id});
        }
        return std::tuple(graph, inputs, outputs);
      },
      nb::arg("programs"),
      "The programs, one behind the other, as a graph: it, its inputs and what is stored.");
}

}  // namespace

void bind_plan(nb::module_& module) {
  bind_tensor_info(module);
  nb::class_<Plan>(module, "Plan", "Programs and calls in order, and the tensors between them.")
      .def_prop_ro("tensors", &callers_tensors)
      .def_ro("notes", &Plan::notes)
      .def_prop_ro("programs", &program_texts, "The text of every program, in order.")
      .def_prop_ro("forward_steps",
                   [](const Plan& plan) {
                     std::vector<std::string> names;
                     for (const PlanStep& step : plan.forward) names.push_back(step.name);
                     return names;
                   })
      .def_prop_ro("backward_steps",
                   [](const Plan& plan) {
                     std::vector<std::string> names;
                     for (const PlanStep& step : plan.backward) names.push_back(step.name);
                     return names;
                   })
      .def(
          "saved_bytes",
          [](const Plan& plan, const PythonSizes& sizes) {
            return saved_bytes(plan, sizes_of(sizes));
          },
          nb::arg("sizes"), "Activations and inputs that are kept for the backward.")
      .def(
          "cost",
          [](const Plan& plan, const PythonSizes& sizes, bool for_gpu) {
            StepCost sum;
            for (const auto* phase : {&plan.forward, &plan.backward})
              for (const PlanStep& step : *phase) {
                const StepCost cost =
                    cost_of(step, plan, sizes_of(sizes), for_gpu ? h200_rates() : Rates{});
                sum.flops += cost.flops;
                sum.bytes += cost.bytes;
                sum.seconds += cost.seconds;
              }
            return std::tuple(sum.flops, sum.bytes, sum.seconds);
          },
          nb::arg("sizes"), nb::arg("for_gpu") = false,
          "Of all steps: operations, bytes moved through memory, seconds as predicted.")
      .def(
          "explain",
          [](const Plan& plan, const PythonSizes& sizes, bool for_gpu) {
            return text(plan, sizes_of(sizes), for_gpu ? h200_rates() : Rates{});
          },
          nb::arg("sizes"), nb::arg("for_gpu") = false,
          "What was fused and why, with bytes and predicted times.")
      .def(
          "configurations",
          [](const Plan& plan, const PythonSizes& sizes) {
            std::vector<std::tuple<std::string, std::string, std::string, std::string, std::string>>
                kernels;
            for (const KernelChoice& one : kernel_choices(plan, sizes_of(sizes)))
              kernels.emplace_back(one.program, one.kernel_class, one.extents, one.chosen,
                                   one.chosen_by);
            return kernels;
          },
          nb::arg("sizes"),
          "Of each kernel with products on a GPU: program, class, extents, the configuration that "
          "is chosen, and what chose it (docs/configurations.md).")
      .def(
          "split",
          [](const Plan& plan) {
            SplitPlan split = split_phases(plan);
            return std::pair(std::move(split.forward), std::move(split.backward));
          },
          "Forward and backward as two plans: what is saved passes through the caller.")
      .def("in_one_phase", &in_one_phase,
           "Forward and backward as one phase, which saves nothing.");
  bind_program(module);
  module.def("compile", &compile_graph, nb::arg("graph"), nb::arg("outputs"), nb::arg("seeds"),
             nb::arg("gradients"), nb::arg("sizes"), nb::arg("storage") = "f32",
             nb::arg("objective") = "memory", nb::arg("loss_rows") = 0, nb::arg("fuse") = true,
             nb::arg("for_gpu") = false,
             "A plan of `outputs` [(name, value)] and, if there are `seeds` [(value, upstream "
             "gradient)], of `gradients` [(input, name, dtype)]. `sizes` are what costs are "
             "compared at; the plan runs at any.");
  module.def("eight_bits_names", &eight_bits_names, "What `products` may be: docs/fp8.md.");
  module.def("compile_in_eight_bits", &compile_in_eight_bits, nb::arg("graph"), nb::arg("outputs"),
             nb::arg("seeds"), nb::arg("gradients"), nb::arg("sizes"), nb::arg("products"),
             nb::arg("objective") = "memory", nb::arg("loss_rows") = 0, nb::arg("for_gpu") = false,
             "As compile, in bf16 with `products` in 8 bits (eight_bits_names), "
             "for the sizes given alone; and what each scale begins with. The plan "
             "has three tensors more, of SCALE_COLUMNS columns a scale.");
  module.def(
      "next_scales_program", [] { return std::string(next_scales_program()); },
      "The text of the program that finds the next step's scales.");
  module.attr("SCALE_COLUMNS") = kScaleColumns;
  module.attr("SCALES") = kScales;
  module.attr("INVERSES") = kInverses;
  module.attr("MAGNITUDES") = kMagnitudes;
  module.def(
      "tune",
      [](const Plan& plan, const PythonSizes& sizes, size_t most, double seconds) {
        const nb::gil_scoped_release released;
        std::vector<std::tuple<std::string, std::string, std::string, double, std::string, double>>
            kernels;
        const TuneOptions options{.most = most, .seconds = seconds, .again = false};
        for (const TunedKernel& one : tune(plan, sizes_of(sizes), options).kernels)
          kernels.emplace_back(one.kernel_class, one.extents, one.chosen.code,
                               one.chosen.microseconds, one.configurations.front().code,
                               one.configurations.front().microseconds);
        return kernels;
      },
      nb::arg("plan"), nb::arg("sizes"), nb::arg("most") = 24, nb::arg("seconds") = 0.6,
      "Times configurations of the plan's kernels on this GPU, and keeps the times for whoever "
      "makes these kernels here afterwards (coda tune); but not of what was timed here before. Of "
      "each: class, extents, what was chosen, "
      "its microseconds, the fastest, its microseconds.");
  module.def(
      "precompile",
      [](const std::vector<std::pair<Plan, PythonSizes>>& plans, uint32_t multiprocessors,
         const std::string& device, std::pair<int, int> capability, unsigned threads) {
        std::vector<SizedPlan> sized;
        for (const auto& [plan, sizes] : plans) sized.push_back({plan, sizes_of(sizes)});
        const nb::gil_scoped_release released;
        return precompile(sized, {.multiprocessors = multiprocessors,
                                  .device = device,
                                  .major = capability.first,
                                  .minor = capability.second,
                                  .threads = threads})
            .compiled;
      },
      nb::arg("plans"), nb::arg("multiprocessors"), nb::arg("device") = "NVIDIA H200",
      nb::arg("capability") = std::pair(9, 0), nb::arg("threads") = 0,
      "Compiles the GPU kernels of plans [(Plan, sizes)], all at once, into the cache; how many "
      "were not there. Needs NVRTC and no GPU.");
}

}  // namespace coda::python
