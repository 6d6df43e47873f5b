// SPDX-License-Identifier: Apache-2.0
// What is the same for all rows is loaded ahead of them; what a row needs first, an index for
// example, before its tiles.
#include "hopper/codegen/tile_vectors.h"

#include "coda/error.h"
#include "hopper/codegen/expressions.h"
#include "program/step_table.h"

namespace coda::hopper {

Planes TileVectors::value(int i, const TileLayout& layout) {
  const Step& s = program_.steps[i];
  if (program::is_constant(s)) return {"(" + number_text(s.number()) + ")"};
  const bool is_per_column = s.shape.is_per_column();
  std::string key;
  if (is_per_column) {
    for (int w = 0; w < layout.planes(); ++w) key += columns_.of(layout, w) + " ";
  }
  const auto [found, is_new] = values_.try_emplace({i, key});
  if (!is_new) return found->second;
  std::string variant;
  if (is_per_column && layout != TileLayout{}) variant = "_" + columns_.of(layout, 0);
  const int planes = is_per_column ? layout.planes() : 1;
  Planes result;
  for (int w = 0; w < planes; ++w) {
    result.push_back("v" + std::to_string(i) + variant +
                     (planes == 1 ? "" : "_" + std::to_string(w)));
  }
  for (int w = 0; w < planes; ++w) make(i, layout, w, result[w]);
  return values_[{i, key}] = result;
}

void TileVectors::make(int i, const TileLayout& layout, int w, const std::string& value) {
  const Step& s = program_.steps[i];
  const int t = s.tensor();
  switch (s.kind()) {
    case StepKind::load_scalar:
      text_.before += "    const float " + value + " = load_element<" + arguments_.stored_type(t) +
                      ">(" + arguments_.pointer(t) + ", 0);" + arguments_.comment(t);
      return;
    case StepKind::load_per_row: {
      const std::string rows = "r" + std::to_string(i);
      text_.row_arrays += "      float " + rows + "[kThreadRows];\n";
      text_.first_loads += "        " + rows + "[r] = load_of_row<" + arguments_.stored_type(t) +
                           ">(" + element_of_row(t) + ");" + arguments_.comment(t);
      text_.body += "        const float " + value + " = " + rows + "[r];\n";
      return;
    }
    case StepKind::load_per_column: {
      const std::string raw = "c" + value.substr(1);
      text_.before += "    const auto " + raw + " = load_eight<" + arguments_.stored_type(t) +
                      ", Access::cached, " + ColumnText::is_vector(layout) + ">(" +
                      arguments_.pointer(t) + ", 0, " + columns_.loaded("at.valid") + ", " +
                      columns_.of(layout, w) + ");" + arguments_.comment(t);
      if (layout.is_vector()) columns_.align_tensor(t, false);
      text_.body += "        const auto " + value + " = values(" + raw + ");\n";
      return;
    }
    case StepKind::column_index:
      text_.body += "        const auto " + value + " = column_indices<" +
                    ColumnText::is_vector(layout) + ">(" + columns_.of(layout, w) + ");\n";
      return;
    case StepKind::elementwise:
    case StepKind::as_stored: {
      std::vector<std::string> operands;
      for (int o : s.operands) {
        const Planes planes = this->value(o, layout);
        operands.push_back(planes.size() == 1 ? planes[0] : planes[w]);
      }
      const std::string line = std::string("const ") +
                               (s.shape.is_per_column() ? "auto " : "float ") + value + " = " +
                               expression(s, operands) + ";\n";
      (s.shape.is_scalar() ? text_.before += "    " : text_.body += "        ") += line;
      return;
    }
    default: throw InternalError("a vector of a tile program that is neither loaded nor made");
  }
}

// What a row outside reads is not used.
std::string TileVectors::element_of_row(int tensor) {
  return arguments_.pointer(tensor) + ", inside, " + arguments_.row_bytes(tensor);
}

std::string TileVectors::index_of_row(int tensor) {
  const std::string index = "i" + std::to_string(tensor);
  if (indices_.insert(tensor).second) {
    text_.row_arrays += "      u32 " + index + "[kThreadRows];\n";
    text_.first_loads += "        " + index + "[r] = index_of_row(" + element_of_row(tensor) +
                         ");" + arguments_.comment(tensor);
  }
  return index + "[r]";
}

}  // namespace coda::hopper
