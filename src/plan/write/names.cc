// SPDX-License-Identifier: Apache-2.0
// Declares each tensor when it is first named.
#include "plan/write/names.h"

#include "base/columns.h"
#include "coda/error.h"
#include "ir/calls.h"
#include "ir/rebuild.h"
#include "plan/partition/materialise.h"

namespace coda {
namespace {

// A size as part of a name: "128", "2_I_4".
std::string word(const Dim& dim) {
  std::string word;
  for (char c : dim.text()) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (plain || (!word.empty() && word.back() != '_')) word += plain ? c : '_';
  }
  return word;
}

// Inputs that early cotangents depend on and the outputs do not.
std::set<std::string> upstream_inputs(const CompileRequest& request) {
  std::set<std::string> names;
  std::vector<int> seeds;
  std::vector<int> outputs;
  for (const SeededOutput& seed : request.seeds) {
    if (seed.is_early) seeds.push_back(seed.cotangent.id);
    outputs.push_back(seed.output.id);
  }
  if (seeds.empty()) return names;
  const Graph& graph = *request.seeds[0].output.graph;
  for (const NamedValue& output : request.outputs) outputs.push_back(output.value.id);
  const std::vector<bool> of_seeds = reached_from(graph, seeds);
  const std::vector<bool> of_outputs = reached_from(graph, outputs);
  for (int id = 0; id < graph.size(); ++id) {
    const auto i = static_cast<size_t>(id);
    if (graph.node(id).op == Op::input && of_seeds[i] && !of_outputs[i])
      names.insert(graph.node(id).name);
  }
  return names;
}

}  // namespace

TensorNames::TensorNames(const JointGraph& joint, const Partition& partition,
                         const CompileRequest& request, const CompileOptions& options)
    : joint_(joint),
      graph_(*joint.graph),
      partition_(partition),
      options_(options),
      upstream_(upstream_inputs(request)),
      labels_(joint) {
  auto claim = [this](int id, const std::string& name, DType type) {
    if (caller_names_.contains(id)) {
      throw Error("\"" + name + "\" and \"" + caller_names_.at(id) +
                  "\" are the same value; ask for one of them");
    }
    caller_names_[id] = name;
    caller_types_[id] = type;
  };
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const int id = joint.outputs[i];
    claim(id, request.outputs[i].name,
          graph_.node(id).shape.is_tensor() ? request.outputs[i].dtype.value_or(options.storage)
                                            : DType::f32);
  }
  for (size_t i = 0; i < request.gradients.size(); ++i) {
    const int id = joint.gradients[i];
    require(id >= 0, "gradient \"" + request.gradients[i].name +
                         "\": no seeded output depends on its input");
    claim(id, request.gradients[i].name, request.gradients[i].dtype);
    gradients_[id] = &request.gradients[i];
    // Tensors that calls add to until they hold a gradient (a tied embedding's) have the gradient's
    // type, to avoid rounding in between.
    for (int sum = id; graph_.node(sum).op == Op::result;) {
      const Node& call = graph_.node(graph_.node(sum).operands[0]);
      if (!adds(call)) break;
      sum = call.operands.back();
      summands_[sum] = id;
      caller_types_.try_emplace(sum, request.gradients[i].dtype);
    }
  }
  // Blocks of rows are accumulated in fp32.
  for (int id : joint.row_blocks.sums) caller_types_.try_emplace(id, DType::f32);
  for (const auto& [id, name] : caller_names_) taken_.insert(name);
  for (int id = 0; id < graph_.size(); ++id) {
    const Node& n = graph_.node(id);
    if (n.op == Op::input) taken_.insert(n.name);
    if (n.op != Op::concat_columns) continue;
    Dim offset = 0;
    for (int part : n.operands) {
      part_of_[part] = {id, offset};
      offset = offset + graph_.node(part).shape.cols;
    }
  }
}

std::string TensorNames::free_name(const std::string& wanted) const {
  std::string name = wanted;
  for (int number = 2; taken_.contains(name); ++number)
    name = wanted + "_" + std::to_string(number);
  return name;
}

std::string TensorNames::name_of(int id) {
  auto given = caller_names_.find(id);
  return given != caller_names_.end() ? given->second : own_name(id);
}

std::string TensorNames::own_name(int id) {
  auto known = own_names_.find(id);
  if (known != own_names_.end()) return known->second;
  const std::string name = free_name(labels_.of(id));
  taken_.insert(name);
  return own_names_[id] = name;
}

std::string TensorNames::declare(PlanTensor tensor) {
  auto [entry, is_new] = index_.try_emplace(tensor.decl.name, tensors_.size());
  if (is_new) tensors_.push_back(std::move(tensor));
  return entry->first;
}

TensorDecl& TensorNames::decl(const std::string& name) { return tensors_[index_.at(name)].decl; }

std::string TensorNames::view(const std::string& base, const Shape& shape, const Dim& offset,
                              bool transposed) {
  const PlanTensor source = tensors_[index_.at(base)];
  PlanTensor tensor;
  tensor.decl = source.decl;
  tensor.decl.name = free_name(base + (transposed ? ".transposed" : ".columns" + word(offset)));
  tensor.decl.shape = shape;
  // If two views start at the same column, the second name also contains its end.
  const auto other = index_.find(tensor.decl.name);
  if (other != index_.end() && tensors_[other->second].decl.shape != shape)
    tensor.decl.name += "to" + word(offset + shape.cols);
  tensor.role = source.role;
  tensor.view_of = base;
  tensor.column_offset = offset;
  tensor.transposed = transposed;
  return declare(tensor);
}

DType TensorNames::type_of(int id) const {
  auto given = caller_types_.find(id);
  if (given != caller_types_.end()) return given->second;
  // A copy of an input has the input's precision.
  const Node& n = graph_.node(id);
  const bool copies = n.op == Op::elementwise && n.fn == Elementwise::add &&
                      graph_.node(n.operands[1]).op == Op::constant &&
                      graph_.node(n.operands[1]).number == 0 && is_source(graph_, n.operands[0]);
  const Node& base = graph_.node(copies ? source_base(graph_, n.operands[0]) : id);
  if (copies && base.op == Op::input) return base.dtype == DType::i32 ? DType::f32 : base.dtype;
  return graph_.node(id).shape.is_tensor() ? options_.storage : DType::f32;
}

TensorRef TensorNames::read(int id, bool backward) {
  const Node& n = graph_.node(id);
  switch (n.op) {
    case Op::input: {
      PlanTensor tensor;
      tensor.decl = {n.name, n.shape, n.dtype, TensorKind::dense, 1};
      tensor.role = n.kind == InputKind::parameter ? TensorRole::parameter : TensorRole::input;
      tensor.is_table = n.kind == InputKind::table;
      tensor.is_upstream = upstream_.contains(n.name);
      return {declare(tensor)};
    }
    case Op::result: return {opaque_result(id)};
    case Op::slice_columns: {
      TensorRef base = read(n.operands[0], backward);
      require(base.repeat.is(1), "a slice of repeated columns is not supported; repeat the slice");
      base.name = view(base.name, {decl(base.name).shape.rows, n.shape.cols}, n.dim, false);
      return base;
    }
    case Op::repeat_columns: {
      TensorRef base = read(n.operands[0], backward);
      base.repeat = *product(base.repeat, n.repeat);  // its columns have a size
      return base;
    }
    case Op::gather_rows: {
      TensorRef base = read(n.operands[0], backward);
      base.row_index = n.operands[1];
      return base;
    }
    default: return {written(id, backward)};
  }
}

std::string TensorNames::written(int id, bool backward) {
  const Node& n = graph_.node(id);
  auto part = part_of_.find(id);
  if (part != part_of_.end() && !caller_names_.contains(id)) {
    const std::string whole = written(part->second.first, backward);
    return view(whole, n.shape, part->second.second, false);
  }
  const bool again =
      backward && partition_.stored_backward.contains(id) && partition_.stored_forward.contains(id);
  PlanTensor tensor;
  tensor.decl.name = name_of(id);
  tensor.decl.shape = n.shape;
  tensor.decl.dtype = type_of(id);
  const bool saved = partition_.saved.contains(id);
  tensor.role = caller_names_.contains(id) ? TensorRole::output
                : saved                    ? TensorRole::saved
                                           : TensorRole::temporary;
  if (again && !saved) {
    tensor.decl.name = free_name(tensor.decl.name + ".again");
    tensor.role = TensorRole::temporary;
  }
  return declare(tensor);
}

std::string TensorNames::opaque_result(int id) {
  const Node& n = graph_.node(id);
  const int stored = stored_value(graph_, id);
  if (stored >= 0) {
    const bool tensor = n.shape.is_tensor() || graph_.node(stored).op == Op::concat_columns;
    return tensor ? read(stored, !joint_.forward[static_cast<size_t>(id)]).name : vector(stored);
  }
  const Node& call = graph_.node(n.operands[0]);
  auto part = part_of_.find(id);
  if (part != part_of_.end() && !caller_names_.contains(id)) {
    return view(written(part->second.first, true), n.shape, part->second.second, false);
  }
  const bool fp32 = call.result_is_fp32[static_cast<size_t>(n.which)];
  PlanTensor tensor;
  tensor.decl.name = name_of(id);
  tensor.decl.shape = n.shape;
  tensor.decl.dtype = fp32 ? DType::f32 : options_.storage;
  if (gradients_.contains(id) || summands_.contains(id)) tensor.decl.dtype = caller_types_.at(id);
  tensor.role = caller_names_.contains(id)      ? TensorRole::output
                : partition_.saved.contains(id) ? TensorRole::saved
                                                : TensorRole::temporary;
  return declare(tensor);
}

std::string TensorNames::vector(int id, int result) {
  const Node& n = graph_.node(id);
  if (n.op == Op::input) return read(id, false).name;
  if (n.op == Op::result) return opaque_result(id);
  if (n.op == Op::repeat_columns) return vector(n.operands[0]);
  if (n.op == Op::slice_columns && is_source(graph_, id)) return read(id, false).name;
  if (n.op == Op::transpose && is_source(graph_, n.operands[0])) {
    return view(vector(n.operands[0]), n.shape, 0, true);
  }
  const auto part = part_of_.find(id);
  if (part != part_of_.end() && caller_names_.contains(part->second.first) && !accumulates(id) &&
      !caller_names_.contains(id)) {
    return gradient_tensor(id);
  }
  if (part != part_of_.end() && !caller_names_.contains(part->second.first)) {
    return view(written(part->second.first, false), n.shape, part->second.second, false);
  }
  const bool callers = caller_names_.contains(id) && result < 0 && !accumulates(id);
  PlanTensor tensor;
  tensor.decl.name =
      callers      ? caller_names_.at(id)
      : result < 0 ? own_name(id)
                   : free_name(own_name(id) + "." +
                               std::string(info(n.reduction).results[static_cast<size_t>(result)]));
  tensor.decl.shape = n.shape;
  tensor.decl.dtype = callers ? type_of(id) : DType::f32;
  tensor.role = callers ? TensorRole::output : TensorRole::temporary;
  return declare(tensor);
}

bool TensorNames::accumulates(int id) const {
  const GradientRequest* gradient = gradient_of(id);
  return gradient != nullptr && gradient->accumulate;
}

std::string TensorNames::gradient_tensor(int id) {
  const auto part = part_of_.find(id);
  if (part != part_of_.end() && !gradients_.contains(id)) {
    return view(gradient_tensor(part->second.first), graph_.node(id).shape, part->second.second,
                false);
  }
  PlanTensor tensor;
  tensor.decl.name = caller_names_.at(id);
  tensor.decl.shape = graph_.node(id).shape;
  tensor.decl.dtype = type_of(id);
  tensor.role = TensorRole::output;
  return declare(tensor);
}

std::string TensorNames::partial(int id, PartialKind kind, const Shape& shape,
                                 TensorKind tensor_kind) {
  PlanTensor tensor;
  tensor.decl = {free_name(name_of(id) + ".partial"), shape, DType::f32, tensor_kind,
                 info(kind).lanes};
  return declare(tensor);
}

std::string TensorNames::reduce_members_apart(const std::string& partial) {
  PlanTensor tensor = tensors_[index_.at(partial)];
  tensor.decl.name = free_name(partial + ".second");
  return declare(std::move(tensor));
}

std::string TensorNames::second_members(const std::string& partial) const {
  const std::string name = free_name(partial + ".second");
  return index_.contains(name) ? name : "";
}

const GradientRequest* TensorNames::gradient_of(int id) const {
  auto part = part_of_.find(id);
  auto found =
      gradients_.find(part != part_of_.end() && !gradients_.contains(id) ? part->second.first : id);
  return found == gradients_.end() ? nullptr : found->second;
}

std::string TensorNames::added_to(int id) {
  if (accumulates(id)) return gradient_tensor(id);
  const auto sum = summands_.find(id);
  const bool added = sum != summands_.end() && gradients_.at(sum->second)->accumulate;
  return added ? gradient_tensor(sum->second) : "";
}

void TensorNames::set_partial_shape(const std::string& name, const Shape& shape) {
  decl(name).shape = shape;
}

}  // namespace coda
