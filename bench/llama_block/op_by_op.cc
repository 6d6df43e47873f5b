// SPDX-License-Identifier: Apache-2.0
// Operations are recorded while the block is built. Each is compiled as a separate graph, and the
// plans are concatenated: forwards in order, backwards in reverse. The gradients of a result with
// several readers are added, with one program per addition.
#include "op_by_op.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "coda/plan.h"

namespace coda::bench {
namespace {

class Recorder {
 public:
  using Build = std::function<Value(const std::vector<Value>&)>;

  Recorder(DType storage, bool backward, DimValues sizes)
      : storage_(storage), backward_(backward), sizes_(std::move(sizes)) {}

  void input(const std::string& name, Shape shape, InputKind kind, DType dtype) {
    inputs_[name] = {std::move(shape), dtype, kind};
  }

  // passed_on: the operands' gradient is the result's, and nothing is computed.
  enum class Adjoint : uint8_t { computed, passed_on };
  std::string apply(const std::string& name, std::vector<std::string> operands, const Build& build,
                    Adjoint adjoint = Adjoint::computed) {
    operations_.push_back({name, std::move(operands), build, adjoint});
    const Operation& op = operations_.back();
    Graph graph;
    const Value result = build(inputs_of(op, graph));
    inputs_[name] = {result.shape(), storage_, InputKind::activation};
    return name;
  }

  Plan plan(const std::vector<std::string>& outputs, const std::vector<std::string>& wanted) {
    std::map<std::string, std::vector<PlanStep>> backwards;
    for (const Operation& op : operations_) {
      Plan alone = compile_alone(op);
      add_tensors(alone);
      for (PlanStep& step : alone.forward) plan_.forward.push_back(std::move(step));
      backwards[op.name] = std::move(alone.backward);
    }
    if (backward_) {
      for (const std::string& name : outputs) arrive(name, "d_" + name);
      for (auto op = operations_.rbegin(); op != operations_.rend(); ++op) {
        run_backward(*op, backwards[op->name]);
      }
      for (const std::string& name : wanted) alias_["d_" + name] = gradient_.at(name);
    }
    rename(wanted);
    set_roles(outputs, wanted);
    return std::move(plan_);
  }

 private:
  struct Tensor {
    Shape shape;
    DType dtype = DType::f32;
    InputKind kind = InputKind::activation;
  };
  struct Operation {
    std::string name;
    std::vector<std::string> operands;
    Build build;
    Adjoint adjoint;
  };

  std::vector<Value> inputs_of(const Operation& op, Graph& graph) const {
    std::vector<Value> values;
    for (const std::string& name : op.operands) {
      const Tensor& t = inputs_.at(name);
      values.push_back(graph.input(name, t.shape, t.dtype, t.kind));
    }
    return values;
  }

  static std::string part(const Operation& op, const std::string& operand) {
    return "d_" + operand + "@" + op.name;
  }

  Plan compile_alone(const Operation& op) const {
    Graph graph;
    const std::vector<Value> operands = inputs_of(op, graph);
    const Value result = op.build(operands);
    CompileRequest request;
    request.outputs = {{op.name, result}};
    if (backward_ && op.adjoint == Adjoint::computed) {
      request.seeds = {{result, graph.input("d_" + op.name, result.shape(), storage_)}};
      for (size_t i = 0; i < operands.size(); ++i) {
        if (inputs_.at(op.operands[i]).kind == InputKind::table) continue;
        request.gradients.push_back({operands[i], part(op, op.operands[i]), storage_, false});
      }
    }
    CompileOptions options;
    options.sizes = sizes_;
    options.storage = storage_;
    options.rates = cpu_rates();
    Plan alone = compile(graph, request, options).plan;
    // What is not named by the block is this operation's own.
    std::map<std::string, std::string> names;
    for (PlanTensor& t : alone.tensors) {
      const bool own = t.role == TensorRole::saved || t.role == TensorRole::temporary;
      if (own) names[t.decl.name] = op.name + "/" + t.decl.name;
    }
    rename(alone, [&](std::string& name) {
      if (const auto found = names.find(name); found != names.end()) name = found->second;
    });
    for (auto* phase : {&alone.forward, &alone.backward}) {
      for (PlanStep& step : *phase) step.name = op.name + "/" + step.name;
    }
    return alone;
  }

  template <class Function>
  static void rename(Plan& plan, const Function& function) {
    for (PlanTensor& t : plan.tensors) {
      function(t.decl.name);
      if (!t.view_of.empty()) function(t.view_of);
    }
    for (auto* phase : {&plan.forward, &plan.backward}) {
      for (PlanStep& step : *phase) {
        for (TensorDecl& t : std::get<Program>(step.work).tensors) function(t.name);
      }
    }
  }

  void add_tensors(const Plan& plan) {
    for (const PlanTensor& t : plan.tensors) {
      if (declared_.insert(t.decl.name).second) plan_.tensors.push_back(t);
    }
  }

  // A gradient of `name` that lies in the tensor `part`; the second one is added to the first.
  void arrive(const std::string& name, const std::string& part) {
    auto [entry, is_first] = gradient_.try_emplace(name, part);
    if (is_first) return;
    Recorder addition(storage_, false, sizes_);
    const Tensor& t = inputs_.at(name);
    for (const std::string& operand : {entry->second, part}) {
      addition.input(operand, t.shape, InputKind::activation, storage_);
    }
    const std::string total = entry->second + "+" + part;
    addition.apply(total, {entry->second, part},
                   [](const std::vector<Value>& x) { return x[0] + x[1]; });
    Plan alone = addition.compile_alone(addition.operations_.back());
    add_tensors(alone);
    for (PlanStep& step : alone.forward) plan_.backward.push_back(std::move(step));
    entry->second = total;
  }

  void run_backward(const Operation& op, std::vector<PlanStep>& steps) {
    const std::string gradient = gradient_.at(op.name);
    if (op.adjoint == Adjoint::computed) {
      alias_["d_" + op.name] = gradient;  // by that name its programs read it
      for (PlanStep& step : steps) plan_.backward.push_back(std::move(step));
    }
    for (const std::string& operand : op.operands) {
      if (inputs_.at(operand).kind == InputKind::table) continue;
      arrive(operand, op.adjoint == Adjoint::computed ? part(op, operand) : gradient);
    }
  }

  // Gradients under the names that the caller binds, and under one name each.
  void rename(const std::vector<std::string>& wanted) {
    std::map<std::string, std::string> final_names;
    for (const std::string& name : wanted) {
      if (backward_) final_names[gradient_.at(name)] = "d_" + name;
    }
    std::set<std::string> seen;
    rename(plan_, [&](std::string& name) {
      const auto alias = alias_.find(name);
      if (alias != alias_.end() && !final_names.contains(name)) name = alias->second;
      if (const auto found = final_names.find(name); found != final_names.end())
        name = found->second;
    });
    std::erase_if(plan_.tensors,
                  [&](const PlanTensor& t) { return !seen.insert(t.decl.name).second; });
  }

  void set_roles(const std::vector<std::string>& outputs, const std::vector<std::string>& wanted) {
    std::set<std::string> in_forward;
    std::set<std::string> in_backward;
    std::set<std::string> written;
    for (auto* phase : {&plan_.forward, &plan_.backward}) {
      for (const PlanStep& step : *phase) {
        for (const StepTensor& use : step_tensors(step)) {
          (phase == &plan_.forward ? in_forward : in_backward).insert(use.name);
          if (use.written) written.insert(use.name);
        }
      }
    }
    std::set<std::string> results(outputs.begin(), outputs.end());
    for (const std::string& name : wanted) results.insert("d_" + name);
    std::erase_if(plan_.tensors, [&](const PlanTensor& t) {
      return !in_forward.contains(t.decl.name) && !in_backward.contains(t.decl.name);
    });
    for (PlanTensor& t : plan_.tensors) {
      const std::string& name = t.decl.name;
      const bool both = in_forward.contains(name) && in_backward.contains(name);
      if (results.contains(name)) {
        t.role = TensorRole::output;
      } else if (written.contains(name)) {
        t.role = both ? TensorRole::saved : TensorRole::temporary;
      }
    }
  }

  DType storage_;
  bool backward_;
  DimValues sizes_;
  std::map<std::string, Tensor> inputs_;  // and results
  std::vector<Operation> operations_;
  Plan plan_;
  std::set<std::string> declared_;
  std::map<std::string, std::string> gradient_;  // value -> the tensor with its gradient so far
  std::map<std::string, std::string> alias_;
};

}  // namespace

Plan op_by_op_plan(const BlockSize& size, DType storage, bool backward, const DimValues& sizes) {
  using Values = std::vector<Value>;
  Recorder block(storage, backward, sizes);
  const int64_t d = size.width;
  const int64_t kv = size.kv_heads * size.head_dim();
  const auto weight = [&](const std::string& name, Shape shape) {
    block.input(name, std::move(shape), InputKind::parameter, storage);
  };
  for (const char* name : {"x0", "y0"}) {
    block.input(name, {"M", d}, InputKind::activation, storage);
  }
  for (const char* name : {"wo", "wq"}) weight(name, {d, d});
  for (const char* name : {"wk", "wv"}) weight(name, {kv, d});
  for (const char* name : {"wg", "wu"}) weight(name, {size.mlp, d});
  for (const char* name : {"w1", "w2"}) weight(name, {1, d});
  weight("wd", {d, size.mlp});
  for (const char* name : {"cos", "sin"}) {
    block.input(name, {size.tokens, size.head_dim() / 2}, InputKind::table, DType::f32);
  }
  block.input("position", {"M", 1}, InputKind::table, DType::i32);

  const auto linear = [&](const std::string& name, const std::string& x, const std::string& w) {
    return block.apply(name, {x, w}, [](const Values& v) { return coda::linear(v[0], v[1]); });
  };
  const auto sum = [&](const std::string& name, const std::string& a, const std::string& b) {
    return block.apply(
        name, {a, b}, [](const Values& v) { return v[0] + v[1]; }, Recorder::Adjoint::passed_on);
  };
  const auto norm = [&](const std::string& name, const std::string& x, const std::string& w) {
    return block.apply(name, {x, w}, [](const Values& v) { return rms_norm(v[0], v[1], 1e-5); });
  };
  const auto rotate = [&](const std::string& name, const std::string& x, int64_t heads) {
    return block.apply(name, {x, "cos", "sin", "position"},
                       [heads, head = size.head_dim()](const Values& v) {
                         return rope(v[0], {v[1], v[2], v[3]}, heads, head);
                       });
  };
  sum("x1", "x0", linear("o", "y0", "wo"));
  norm("h1", "x1", "w1");
  linear("gate", "h1", "wg");
  linear("up", "h1", "wu");
  block.apply("a", {"gate", "up"}, [](const Values& v) { return swiglu(v[0], v[1]); });
  sum("x2", "x1", linear("down", "a", "wd"));
  norm("h2", "x2", "w2");
  rotate("q", linear("q0", "h2", "wq"), size.heads);
  rotate("k", linear("k0", "h2", "wk"), size.kv_heads);
  linear("v", "h2", "wv");
  return block.plan({"x2", "q", "k", "v"},
                    {"x0", "y0", "wo", "w1", "wg", "wu", "wd", "w2", "wq", "wk", "wv"});
}

}  // namespace coda::bench
