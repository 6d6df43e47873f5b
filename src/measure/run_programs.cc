// SPDX-License-Identifier: Apache-2.0
#include "coda/run_programs.h"

#include "base/stored_element.h"
#include "coda/session.h"
#include "measure/chain.h"
#include "measure/given_inputs.h"

namespace coda {
namespace {

// A dense image of the values in the tensor's type.
Tensor on_host(const TensorDecl& decl, const DimValues& sizes, const std::vector<double>& values) {
  const auto [rows, cols] = physical_shape(decl, sizes);
  Tensor tensor(decl.dtype, rows, cols);
  for (size_t i = 0; i < values.size(); ++i)
    write_element(decl.dtype, tensor.view().data, static_cast<int64_t>(i), values[i]);
  return tensor;
}

Array array_of(const TensorDecl& decl, const Tensor& tensor) {
  const Tensor host(tensor.dtype(), tensor.rows(), tensor.cols());
  tensor.copy_to(host.view());
  Array array{{tensor.rows(), tensor.cols()},
              std::vector<double>(static_cast<size_t>(host.size()))};
  for (size_t i = 0; i < array.values.size(); ++i)
    array.values[i] = read_element(host.dtype(), host.view().data, static_cast<int64_t>(i));
  if (decl.kind != TensorKind::dense) return array;
  if (decl.shape.is_scalar()) array.shape.clear();
  if (decl.shape.is_per_row()) array.shape = {tensor.rows()};
  if (decl.shape.is_per_column()) array.shape = {tensor.cols()};
  return array;
}

}  // namespace

RunResult run_programs(std::span<const Program> programs, const DimValues& sizes,
                       const Arrays& inputs, Backend& backend) {
  measure::require_chain(programs);
  measure::GivenInputs given = measure::given_inputs(programs, sizes, inputs);
  RunResult result{.notes = std::move(given.notes)};
  TensorMap all;
  for (const Program& program : programs) {
    TensorMap own;
    for (const TensorDecl& decl : program.tensors) {
      const auto [entry, is_new] = all.try_emplace(decl.name);
      if (is_new) {
        const auto [rows, cols] = physical_shape(decl, sizes);
        entry->second = Tensor(decl.dtype, rows, cols, backend);
        const auto values = given.values.find(decl.name);
        if (values != given.values.end())
          entry->second.copy_from(on_host(decl, sizes, values->second).view());
      }
      own.emplace(decl.name, entry->second);
    }
    Session session(one_step_plan(program), backend, sizes);
    session.bind(own);
    session.forward();
  }
  for (const auto& [name, decl] : measure::tensors_of(programs).stored)
    result.results.push_back({name, decl.dtype, array_of(decl, all.at(name))});
  return result;
}

}  // namespace coda
