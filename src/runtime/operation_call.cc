// SPDX-License-Identifier: Apache-2.0
// Applies the operation's shape rule to the call's sizes and compares the declared tensors.
#include "runtime/operation_call.h"

#include <string>
#include <utility>
#include <vector>

#include "coda/error.h"
#include "runtime/values.h"

namespace coda {
namespace {

std::string shape_text(int64_t rows, int64_t cols) {
  return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

class ReferenceKernel : public Kernel {
 public:
  explicit ReferenceKernel(OperationCall call)
      : call_(std::move(call)), operation_(find_operation(call_.operation)) {}

  void run(std::span<const TensorView> tensors) override {
    std::vector<Matrix> inputs, results;
    for (const TensorView& view : tensors.first(call_.operands))
      inputs.push_back({view.rows, view.cols, read_values(view)});
    const std::span<const TensorView> outputs = tensors.subspan(call_.operands);
    for (const TensorView& view : outputs)
      results.push_back({view.rows, view.cols, std::vector<double>(view.size())});
    operation_.evaluate(call_.settings, inputs, results);
    for (size_t i = 0; i < outputs.size(); ++i) write_values(results[i].data, outputs[i]);
  }

 private:
  OperationCall call_;
  const Operation& operation_;
};

}  // namespace

OperationCall operation_call(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                             const DimValues& sizes, std::span<const int64_t> row_strides) {
  const Operation& operation = find_operation(call.function);
  OperationCall result{call.function, {}, {}, call.inputs.size()};
  std::map<std::string, Dim> numbers;
  for (const auto& [name, size] : call.sizes) numbers[name] = size.evaluate(sizes);
  size_t declared = 0;
  try {
    result.settings = checked_settings(operation, call.attributes, numbers);
    declared = operand_count(operation, result.settings);
  } catch (const Error& error) {
    result.check(false, error.what());
  }
  result.check(tensors.size() == call.inputs.size() + call.outputs.size(),
               std::to_string(tensors.size()) + " tensors are declared for " +
                   std::to_string(call.inputs.size()) + " inputs and " +
                   std::to_string(call.outputs.size()) + " outputs");
  result.check(
      call.inputs.size() == declared || (operation.can_add && call.inputs.size() == declared + 1),
      "it has " + std::to_string(call.inputs.size()) + " inputs, not " + std::to_string(declared));
  std::vector<Shape> shapes;
  for (const TensorDecl& decl : tensors) {
    const PhysicalShape shape = physical_shape(decl, sizes);
    result.check(decl.kind == TensorKind::dense, "'" + decl.name + "' is partials of a reduction");
    const size_t i = result.tensors.size();
    result.tensors.push_back({decl.name, decl.dtype, shape.rows, shape.cols,
                              row_strides.empty() ? shape.cols : row_strides[i]});
    if (i < declared) shapes.push_back({shape.rows, shape.cols});
  }
  std::vector<OperationResult> results;
  try {
    results = operation.results(result.settings, shapes);
  } catch (const Error& error) {
    result.check(false, error.what());
  }
  result.check(results.size() == call.outputs.size(),
               "it has " + std::to_string(call.outputs.size()) + " outputs, not " +
                   std::to_string(results.size()));
  for (size_t i = declared; i < tensors.size(); ++i) {
    const OperationTensor& given = result.tensors[i];
    // The operand that is added to has the shape of the only result.
    const Shape& want = results[i < call.inputs.size() ? 0 : i - call.inputs.size()].shape;
    result.check(
        want.rows.is(given.rows) && want.cols.is(given.cols),
        "'" + given.name + "' is " + shape_text(given.rows, given.cols) + ", not " + want.text());
  }
  return result;
}

std::unique_ptr<Kernel> prepare_reference_call(const OpaqueCall& call,
                                               std::span<const TensorDecl> tensors,
                                               const DimValues& sizes) {
  return std::make_unique<ReferenceKernel>(operation_call(call, tensors, sizes));
}

}  // namespace coda
