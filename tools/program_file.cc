// SPDX-License-Identifier: Apache-2.0
#include "program_file.h"

#include "coda/error.h"
#include "io/mapped_file.h"

namespace coda::tools {

Program read_program(const std::string& file) {
  const std::string text = io::read_file(file);
  try {
    return parse_program(text);
  } catch (const Error& error) {
    throw Error(file + ": " + error.what());
  }
}

std::set<std::string> symbols_of(const Program& program) {
  std::set<std::string> symbols;
  for (const TensorDecl& decl : program.tensors) {
    for (const Dim& dim : {decl.shape.rows, decl.shape.cols}) {
      for (const auto& [symbol, factor] : dim.terms()) symbols.insert(symbol);
    }
  }
  return symbols;
}

void require_sizes(const Program& program, const DimValues& sizes) {
  for (const std::string& symbol : symbols_of(program)) {
    require(sizes.contains(symbol), "the size " + symbol + " of program '" + program.name +
                                        "' is not known: give it, as in --sizes " + symbol +
                                        "=1024");
  }
}

std::string text_of(const DimValues& sizes) {
  std::string text;
  for (const auto& [name, value] : sizes) text += " " + name + "=" + std::to_string(value);
  return text;
}

}  // namespace coda::tools
