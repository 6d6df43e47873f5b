// SPDX-License-Identifier: Apache-2.0
// For a row outside the space all values are 0 and indices are 0, so that no load is out of bounds.
#include "gpu/codegen/row_values.h"

#include "gpu/codegen/expressions.h"
#include "program/step_table.h"

namespace coda::gpu {

RowValues::RowValues(const ProgramSizes& sizes, const SpaceAnalysis& analysis,
                     const SpaceOperands& operands, ValueNames& names, LaunchArguments& arguments)
    : sizes_(sizes),
      analysis_(analysis),
      operands_(operands),
      names_(names),
      arguments_(arguments),
      values_(sizes, nullptr, &analysis.representative,
              {.place = [](const At&) { return std::string(); },
               .source = [this](const At& at) { return loaded(at.step); },
               .name = [this](const At& at) { return names_.of_step(at.step); },
               .write = [this](const At& at, const std::string& name,
                               const std::string& text) { write(at.step, name, text); }}) {}

std::string RowValues::place(int tensor) {
  return sizes_.stride(tensor) == 1 ? "row"
                                    : "static_cast<u64>(row) * " + arguments_.stride(tensor);
}

void RowValues::write(int i, const std::string& name, const std::string& text) {
  lines_of(i).line("const float $ = $;", {name, text});
}

std::optional<std::string> RowValues::loaded(int i) {
  const Step& s = step(i);
  if (!program::is_vector_load(s)) return std::nullopt;
  const std::string load = filled(
      "load_element<$>($, ", {arguments_.stored_type(s.tensor()), arguments_.pointer(s.tensor())});
  const std::string& name = names_.of_step(i);
  write(i, name,
        s.shape.is_scalar() ? load + "0)"
                            : filled("is_inside ? $$) : 0.0f", {load, place(s.tensor())}));
  return name;
}

std::string RowValues::value(int i) {
  i = analysis_.representative[i];
  std::string name = values_.value({.step = i});
  if (program::is_constant(step(i))) return name;
  const bool scalar = step(i).shape.is_scalar();
  if (kept_.insert(i).second) {
    fields_.line("float $$;", {name, scalar ? "" : rows_of_thread()});
    lines_of(i).line("rows.$$ = $;", {name, scalar ? "" : "[block][side]", name});
  }
  return "rows." + name + (scalar ? "" : "[kBlock][" + FragmentMap::side() + "]");
}

std::string RowValues::index(int tensor) {
  std::string& name = index_names_[tensor];
  if (name.empty()) {
    name = names_.make(sizes_.tensor(tensor).name + "_index");
    fields_.line("int $$;", {name, rows_of_thread()});
    row_lines_.line("rows.$[block][side] = is_inside ? reinterpret_cast<const int*>($)[$] : 0;",
                    {name, arguments_.pointer(tensor), place(tensor)});
  }
  return "rows." + name;
}

std::string RowValues::known_maximum(int tensor) {
  std::string& name = maximum_names_[tensor];
  if (name.empty()) {
    name = names_.make(sizes_.tensor(tensor).name + "_known");
    fields_.line("u32 $;", {name});
    scalar_lines_.line("rows.$ = raised_word($);", {name, arguments_.pointer(tensor)});
  }
  return "rows." + name;
}

// Computed from the index at each use, because begin_tile would have to wait for the index.
std::string RowValues::table_row(int index_tensor, int table, const std::string& which) {
  std::string& rows = table_rows_[sizes_.tensor(table).shape.rows];
  if (rows.empty()) rows = arguments_.stored_rows(table);
  return filled("table_row($$, $)", {index(index_tensor), which, rows});
}

std::string RowValues::begin(int64_t rows) const {
  std::string lines = scalar_lines_.text();
  if (row_lines_.empty()) return lines;
  const FragmentMap& fragment = sizes_.target().fragment;
  return lines + filled(
                     "#pragma unroll\n"
                     "    for (u32 block = 0; block < $; ++block) {\n"
                     "#pragma unroll\n"
                     "      for (u32 side = 0; side < 2; ++side) {\n"
                     "        const u32 row = $;\n"
                     "        const bool is_inside = row < $;\n$      }\n    }\n",
                     {fragment.blocks, fragment.row_of_block("block", "side"),
                      arguments_.number(operands_.own("rows"), rows), row_lines_.text()});
}

// Array extents with one element per row of a thread.
std::string RowValues::rows_of_thread() const {
  return "[" + std::string(sizes_.target().fragment.blocks) + "][2]";
}

}  // namespace coda::gpu
