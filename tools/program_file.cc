// SPDX-License-Identifier: Apache-2.0
#include "program_file.h"

#include "coda/error.h"

namespace coda::tools {

std::set<std::string> symbols_of(const Program& program) {
  std::set<std::string> symbols;
  const auto add = [&](const Shape& shape) {
    for (const Dim& dim : {shape.rows, shape.cols}) {
      for (const auto& [symbol, factor] : dim.terms()) symbols.insert(symbol);
    }
  };
  for (const TensorDecl& decl : program.tensors) add(decl.shape);
  for (const Step& step : program.steps) add(step.shape);
  return symbols;
}

Program stored_as(Program program, DType type) {
  for (TensorDecl& decl : program.tensors) {
    const bool is_matrix = decl.kind == TensorKind::dense && !decl.shape.is_vector();
    if (is_matrix && decl.dtype == DType::f32) decl.dtype = type;
  }
  return program;
}

void require_sizes(const Program& program, const DimValues& sizes) {
  for (const std::string& symbol : symbols_of(program)) {
    require(sizes.contains(symbol), "the size " + symbol + " of program '" + program.name +
                                        "' is not known: give it, as in --sizes " + symbol +
                                        "=1024");
  }
}

void refuse_other_sizes(std::span<const Program> programs, const DimValues& sizes) {
  std::set<std::string> symbols;
  for (const Program& program : programs) symbols.merge(symbols_of(program));
  std::string listed;
  for (const std::string& symbol : symbols) listed += (listed.empty() ? " " : ", ") + symbol;
  for (const auto& [name, value] : sizes) {
    require(symbols.contains(name), "--sizes: " + name + " is no size of the programs, they have" +
                                        (listed.empty() ? " none" : listed) + ": check the name");
  }
}

std::string text_of(const DimValues& sizes) {
  std::string text;
  for (const auto& [name, value] : sizes) text += " " + name + "=" + std::to_string(value);
  return text;
}

}  // namespace coda::tools
