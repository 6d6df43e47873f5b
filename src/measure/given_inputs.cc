// SPDX-License-Identifier: Apache-2.0
#include "measure/given_inputs.h"

#include <cmath>
#include <limits>

#include "base/stored_element.h"
#include "coda/error.h"
#include "measure/chain.h"

namespace coda::measure {
namespace {

void require_whole_numbers(const std::string& name, const std::vector<double>& values) {
  for (const double x : values) {
    require(x == std::floor(x) && std::abs(x) <= std::numeric_limits<int32_t>::max(),
            "input '" + name + "' is i32 and has " + std::to_string(x) +
                ": it needs whole numbers of 32 bits");
  }
}

void require_rows_of(const Program& program, const DimValues& sizes,
                     const program::TensorValues& values) {
  for (const Step& step : program.steps) {
    if (step.row_index() < 0) continue;
    const TensorDecl& table = program.tensors[static_cast<size_t>(step.tensor())];
    const std::string& index = program.tensors[static_cast<size_t>(step.row_index())].name;
    const int64_t rows = table.shape.rows.evaluate(sizes);
    const auto given = values.find(index);
    if (given == values.end()) continue;
    require_rows(index, given->second, table.name, rows);
  }
}

}  // namespace

void require_rows(const std::string& index, const std::vector<double>& values,
                  const std::string& table, int64_t rows) {
  for (const double row : values) {
    require(row >= 0 && row < static_cast<double>(rows),
            "input '" + index + "' has the index " + std::to_string(static_cast<int64_t>(row)) +
                ", and '" + table + "' has " + std::to_string(rows) + " rows");
  }
}

GivenInputs rounded_inputs(const std::map<std::string, TensorDecl>& declared,
                           const Arrays& inputs) {
  GivenInputs result;
  for (const auto& [name, decl] : declared) {
    std::vector<double>& values = result.values[name] = inputs.at(name).values;
    if (decl.dtype == DType::i32) {
      require_whole_numbers(name, values);
      continue;
    }
    bool changes = false;
    for (double& x : values) {
      const double stored = rounded_to(decl.dtype, x);
      changes = changes || (stored != x && !std::isnan(x));
      x = stored;
    }
    if (changes)
      result.notes.push_back("input " + name + " is rounded to " +
                             std::string(name_of(decl.dtype)));
  }
  return result;
}

GivenInputs given_inputs(std::span<const Program> programs, const DimValues& sizes,
                         const Arrays& inputs) {
  GivenInputs result = rounded_inputs(tensors_of(programs).inputs, inputs);
  for (const Program& program : programs) require_rows_of(program, sizes, result.values);
  return result;
}

}  // namespace coda::measure
