// SPDX-License-Identifier: Apache-2.0
// A row outside the space has values of 0 and the index 0, so that nothing outside is read.
#include "hopper/codegen/row_values.h"

#include "coda/error.h"
#include "hopper/arch/element.h"
#include "hopper/codegen/expressions.h"
#include "program/step_table.h"

namespace coda::hopper {
namespace {

std::string load_element(DType type) { return "load_element<" + element_text(type) + ">"; }

}  // namespace

std::string vector_text(const Step& step, const std::vector<std::string>& operands) {
  if (program::is_elementwise(step)) return expression(step.op(), operands);
  invariant(program::is_rounding(step), "a vector step that no tile uses");
  if (!is_operand(step.dtype())) return operands[0];
  return "rounded<" + element_text(step.dtype()) + ">(" + operands[0] + ")";
}

std::string RowValues::place(int tensor) {
  return sizes_.stride(tensor) == 1 ? "row" : "static_cast<u64>(row) * " + places_.stride(tensor);
}

std::string RowValues::made(int i) {
  i = analysis_.representative[i];
  const Step& s = step(i);
  if (program::is_constant(s)) return number_text(s.number());
  if (made_.contains(i)) return names_.of_step(i);
  made_.insert(i);
  Body& body = s.shape.is_scalar() ? scalar_lines_ : row_lines_;
  std::string value;
  if (program::is_vector_load(s) && s.shape.is_scalar()) {
    value = load_element(sizes_.tensor(s.tensor()).dtype) + "(" + arguments_.pointer(s.tensor()) +
            ", 0)";
  } else if (program::is_vector_load(s)) {
    value = "is_inside ? " + load_element(sizes_.tensor(s.tensor()).dtype) + "(" +
            arguments_.pointer(s.tensor()) + ", " + place(s.tensor()) + ") : 0.0f";
  } else {
    std::vector<std::string> operands;
    for (int operand : s.operands) operands.push_back(made(operand));
    value = vector_text(s, operands);
  }
  body.line("const float " + names_.of_step(i) + " = " + value + ";");
  return names_.of_step(i);
}

std::string RowValues::value(int i) {
  i = analysis_.representative[i];
  if (program::is_constant(step(i))) return number_text(step(i).number());
  const std::string name = made(i);
  const bool scalar = step(i).shape.is_scalar();
  if (kept_.insert(i).second) {
    fields_.line("float " + name + (scalar ? ";" : "[kConfig.blocks_m()][2];"));
    (scalar ? scalar_lines_ : row_lines_)
        .line("rows." + name + (scalar ? "" : "[block][side]") + " = " + name + ";");
  }
  return scalar ? "rows." + name : "rows." + name + "[kBlock][pair % 2]";
}

std::string RowValues::index(int tensor) {
  std::string& name = index_names_[tensor];
  if (name.empty()) {
    name = names_.make(sizes_.tensor(tensor).name + "_index");
    fields_.line("int " + name + "[kConfig.blocks_m()][2];");
    row_lines_.line("rows." + name + "[block][side] = is_inside ? reinterpret_cast<const int*>(" +
                    arguments_.pointer(tensor) + ")[" + place(tensor) + "] : 0;");
  }
  return "rows." + name;
}

// Made of the index where it is read: begin_tile would wait for it.
std::string RowValues::table_row(int index_tensor, int table, const std::string& which) {
  const TensorDecl& decl = sizes_.tensor(table);
  std::string& rows = table_rows_[decl.shape.rows];
  if (rows.empty()) rows = arguments_.number("rows_of_" + decl.name, sizes_.stored_rows(table));
  return "table_row(" + index(index_tensor) + which + ", " + rows + ")";
}

std::string RowValues::begin(int64_t rows) const {
  std::string lines = scalar_lines_.text();
  if (row_lines_.empty()) return lines;
  return lines +
         "#pragma unroll\n"
         "    for (u32 block = 0; block < kConfig.blocks_m(); ++block) {\n"
         "#pragma unroll\n"
         "      for (u32 side = 0; side < 2; ++side) {\n"
         "        const u32 row = at.row + block * kWgmmaM + 8 * side;\n"
         "        const bool is_inside = row < " +
         arguments_.number(operands_.own("rows"), rows) + ";\n" + row_lines_.text() +
         "      }\n    }\n";
}

}  // namespace coda::hopper
