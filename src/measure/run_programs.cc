// SPDX-License-Identifier: Apache-2.0
#include "coda/run_programs.h"

#include "coda/session.h"
#include "measure/chain.h"
#include "measure/given_inputs.h"
#include "measure/host_tensor.h"

namespace coda {

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
          entry->second.copy_from(measure::on_host(decl, sizes, values->second).view());
      }
      own.emplace(decl.name, entry->second);
    }
    Session session(one_step_plan(program), backend, sizes);
    session.bind(own);
    session.forward();
  }
  for (const auto& [name, decl] : measure::tensors_of(programs).stored)
    result.results.push_back({name, decl.dtype, measure::array_of(decl, all.at(name))});
  return result;
}

}  // namespace coda
