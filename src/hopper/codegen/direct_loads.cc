// SPDX-License-Identifier: Apache-2.0
// One flag, the same for all threads of a warpgroup, tells whether all loads are plain.
#include "hopper/codegen/direct_loads.h"

#include "hopper/codegen/expressions.h"

namespace coda::hopper {
namespace {

// What both write of a load.
struct LoadText {
  std::string type;        // DirectPairs' first argument
  std::string is_aligned;  // a condition of plain loads
  std::string first[2];    // the elements of the first pairs
  std::string pointer;
};
LoadText text_of(const DirectLoad& load, const ProgramSizes& sizes, SpacePlaces& places,
                 LaunchArguments& arguments) {
  const int t = sizes.step(load.step).tensor();
  LoadText text;
  text.type = element_text(sizes.tensor(t).dtype);
  text.pointer = arguments.pointer(t);
  text.is_aligned =
      "has_aligned_pairs<" + text.type + ">(" + text.pointer + ", " + places.stride(t) + ")";
  for (const int side : {0, 1})
    text.first[side] = places.element(load.step, load.plane, load.row[side], "at.column");
  return text;
}

void begin_field(Body& body, const std::string& field, const LoadText& text) {
  body.line(field + ".begin(" + text.pointer + ", " + text.first[0] + ",");
  body.line(std::string(field.size() + 7, ' ') + text.first[1] + ");");
}

// For each pair of a fragment whose first column is `column`, indented by `indent`.
std::string partly_text(const std::string& column, const std::string& lines,
                        const std::string& indent) {
  return "#pragma unroll\n" + indent + "for (u32 pair = 0; pair < kPairs; ++pair) {\n" + indent +
         "  const u32 row = at.row + 8 * (pair % 2);\n" + indent +
         "  const u32 column = " + column + " + 8 * (pair / 2);\n" + indent +
         "  const u32 inside = row < at.rows ? inside_pair(column, at.columns) : 0;\n" + lines +
         indent + "}\n";
}

}  // namespace

std::string DirectLoads::add(const DirectLoad& load) {
  const LoadText text = text_of(load, sizes_, places_, arguments_);
  const std::string field = "sub." + load.name;
  if (empty()) fields_.line("bool is_plain;");
  fields_.line("DirectPairs<" + text.type + "> " + load.name + ";");
  begin_.line(std::string("sub.is_plain = ") + (empty() ? "is_whole(at)" : "sub.is_plain") +
              " && " + text.is_aligned + ";");
  begin_field(begin_, field, text);
  plain_.line(field + ".template load<kFragment>();");
  const std::string pair = field + ".fragment[kFragment % 2][pair]";
  partly_.line(pair + " = " + load.value + ";");
  return pair;
}

std::string DirectLoads::function_text() const {
  if (empty()) return "";
  return function("void",
                  "load_ahead(const Arguments& a, const Rows& rows, SubTile& sub,\n"
                  "                                  const FragmentPosition& at)",
                  "    if (sub.is_plain) {\n" + plain_.text() + "    } else {\n" +
                      partly_text("at.column", partly_.text(), "      ") + "    }\n",
                  "  template <u32 kBlock, u32 kFragment>\n");
}

std::string DirectLoads::begin() const {
  return empty() ? "" : begin_.text() + "    load_ahead<kBlock, 0>(a, rows, sub, at);\n";
}

std::string DirectLoads::ahead() const {
  if (empty()) return "";
  return "    if constexpr (kFragment + 1 < kFragments) {\n"
         "      FragmentPosition next = at;\n"
         "      next.column += kFragmentColumns;\n"
         "      load_ahead<kBlock, kFragment + 1>(a, rows, sub, next);\n"
         "    }\n";
}

std::string KeptLoads::add(const DirectLoad& load) {
  const LoadText text = text_of(load, sizes_, places_, arguments_);
  const std::string field = "rows." + load.name;
  if (empty()) fields_.line("bool is_plain;");
  fields_.line("DirectPairs<" + text.type + ", kFragments> " + load.name + ";");
  begin_.line(std::string("rows.is_plain = ") + (empty() ? "is_whole(at)" : "rows.is_plain") +
              " && " + text.is_aligned + ";");
  begin_field(begin_, field, text);
  plain_.line(field + ".template load<kFragment>();");
  partly_.line(field + ".template load<kFragment>(pair, inside);");
  return field + ".fragment[kFragment][pair]";
}

std::string KeptLoads::function_text() const {
  if (empty()) return "";
  return function(
      "void", "load_tables(const Arguments& a, Rows& rows, const FragmentPosition& at)",
      "    if constexpr (kFragment == 0) {\n" + begin_.text() +
          "    }\n"
          "    if (rows.is_plain) {\n" +
          plain_.text() + "    } else {\n" +
          partly_text("at.column + kFragment * kFragmentColumns", partly_.text(), "      ") +
          "    }\n",
      "  template <u32 kFragment>\n");
}

}  // namespace coda::hopper
