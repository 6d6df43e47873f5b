// SPDX-License-Identifier: Apache-2.0
// Each step becomes the graph operation that it is the tile of.
#include "coda/lift.h"

#include "coda/error.h"
#include "program/vocabulary.h"

namespace coda {
namespace {

class Lifter {
 public:
  Lifter(const Program& program, Graph& graph, LiftedTensors& tensors)
      : program_(program), graph_(graph), tensors_(tensors) {}

  void run() {
    for (const Step& step : program_.steps)
      values_.push_back(program::is_effect(step.kind) ? store(step) : value_of(step));
  }

 private:
  const TensorDecl& decl(int tensor) const { return program_.tensors[tensor]; }
  Value operand(const Step& s, size_t index) const { return values_[s.operands[index]]; }

  Value read(int tensor) {
    const TensorDecl& t = decl(tensor);
    const auto found = tensors_.values.find(t.name);
    if (found == tensors_.values.end()) {
      const InputKind kind = t.dtype == DType::i32 ? InputKind::table : InputKind::activation;
      return tensors_.values[t.name] = graph_.input(t.name, t.shape, t.dtype, kind);
    }
    require(found->second.shape() == t.shape, "program '" + program_.name + "': tensor '" + t.name +
                                                  "' has shape " + t.shape.text() + " here and " +
                                                  found->second.shape().text() + " in the graph");
    return found->second;
  }

  // Effects have no value; an empty handle stands for them.
  Value store(const Step& s) {
    const bool is_partial = s.kind == StepKind::row_partial || s.kind == StepKind::column_partial;
    (is_partial ? tensors_.reduced : tensors_.values)[decl(s.tensor).name] = operand(s, 0);
    return {};
  }

  Value value_of(const Step& s) {
    switch (s.kind) {
      case StepKind::gemm: {
        std::vector<MatmulOperands> segments;
        for (const GemmSegment& segment : s.segments) {
          segments.push_back(
              {read(segment.a), read(segment.b), {segment.transpose_a, segment.transpose_b}});
        }
        return matmul(segments);
      }
      case StepKind::load_tile: {
        Value tile = read(s.tensor);
        if (s.row_index >= 0) tile = gather_rows(tile, read(s.row_index));
        return s.repeat == 1 ? tile : repeat_columns(tile, s.repeat);
      }
      case StepKind::load_per_row:
      case StepKind::load_per_column:
      case StepKind::load_scalar: return read(s.tensor);
      case StepKind::constant: return graph_.constant(s.number);
      case StepKind::column_index: return graph_.column_index(s.shape.cols);
      case StepKind::elementwise: {
        std::vector<Value> operands;
        for (int o : s.operands) operands.push_back(values_[o]);
        return elementwise(s.op, std::move(operands));
      }
      case StepKind::split_pair: return split_pair(operand(s, 0), s.group, s.which);
      case StepKind::merge_pairs: return merge_pairs(operand(s, 0), operand(s, 1), s.group);
      case StepKind::as_stored: return operand(s, 0);
      case StepKind::reduce_group: return group_sum(operand(s, 0), s.group);
      case StepKind::repeat_group: return group_repeat(operand(s, 0), s.group);
      case StepKind::select_column: return select_column(operand(s, 0), operand(s, 1));
      case StepKind::combine: return combine(s);
      case StepKind::reduce_vector: {
        const Value v = operand(s, 0);
        return v.shape().is_per_row() ? col_sum(v) : col_sum(transpose(v));
      }
      case StepKind::transpose_vector: return transpose(operand(s, 0));
      default: throw InternalError("a step has no graph operation");
    }
  }

  Value combine(const Step& s) {
    const TensorDecl& t = decl(s.tensor);
    const auto found = tensors_.reduced.find(t.name);
    require(found != tensors_.reduced.end(),
            "program '" + program_.name + "': partial '" + t.name +
                "' can be lifted only after the program that makes it");
    const Value x = found->second;
    const bool rows = t.kind == TensorKind::row_partial;
    const PartialInfo& kind = info(s.partial);
    const auto reduced = [&](PartialKind k) { return rows ? row_reduce(x, k) : col_reduce(x, k); };
    if (s.lane == kind.value) return reduced(s.partial);
    require(kind.needs_count && s.lane == 0,
            "program '" + program_.name + "': the " + std::string(kind.name) + " of '" + t.name +
                "' has no operation in a graph for each of its results alone");
    return mul(reduced(PartialKind::sum),
               graph_.reciprocal_dim(rows ? x.shape().cols : x.shape().rows));
  }

  const Program& program_;
  Graph& graph_;
  LiftedTensors& tensors_;
  std::vector<Value> values_;
};

}  // namespace

void lift(const Program& program, Graph& graph, LiftedTensors& tensors) {
  verify(program);
  Lifter(program, graph, tensors).run();
}

}  // namespace coda
