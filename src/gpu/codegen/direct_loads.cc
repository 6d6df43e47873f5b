// SPDX-License-Identifier: Apache-2.0
// A flag, equal in all threads of a warpgroup, says whether all loads may skip bounds checks.
#include "gpu/codegen/direct_loads.h"

namespace coda::gpu {

std::string DirectLoads::add(const DirectLoad& load) {
  const int t = sizes_.step(load.step).tensor();
  const std::string type = arguments_.stored_type(t);
  const std::string pointer = arguments_.pointer(t);
  const std::string field = owner_ + "." + load.name;
  if (empty()) fields_.line("bool is_plain;");
  fields_.line("DirectPairs<$$> $;", {type, is_kept_ ? ", kFragments" : "", load.name});
  // The second members of pairs may start at an odd column.
  const std::string begins =
      load.plane == 0
          ? ""
          : filled(" && ($) % 2 == 0", {places_.natural(load.step, load.plane, "at.column")});
  begin_.line("$.is_plain = $ && has_aligned_pairs<$>($, $)$;",
              {owner_, empty() ? "is_whole(at)" : owner_ + ".is_plain", type, pointer,
               arguments_.stride(t), begins});
  const auto first = [&](int side) {
    return places_.element(load.step, load.plane, load.row[side], "at.column");
  };
  begin_.line("$.begin($, $,", {field, pointer, first(0)});
  begin_.line("$$);", {std::string(field.size() + 7, ' '), first(1)});
  plain_.line("$.template load<kFragment>();", {field});
  const std::string pair = filled("$.fragment[kFragment$][pair]", {field, is_kept_ ? "" : " % 2"});
  if (is_kept_) {
    partly_.line("$.template load<kFragment>(pair, inside);", {field});
  } else {
    partly_.line("$ = $;", {pair, load.value});
  }
  return pair;
}

std::string DirectLoads::function_text() const {
  if (empty()) return "";
  const FragmentMap& fragment = sizes_.target().fragment;
  const std::string loads = filled(
      "    if ($.is_plain) {\n$    } else {\n#pragma unroll\n"
      "      for (u32 pair = 0; pair < kPairs; ++pair) {\n"
      "        const u32 row = $;\n"
      "        const u32 column = $;\n"
      "        const u32 inside = row < at.rows ? inside_pair(column, at.columns) : 0;\n"
      "$      }\n    }\n",
      {owner_, plain_.text(), fragment.row_of_pair(),
       fragment.column_of_pair(is_kept_ ? " + kFragment * kFragmentColumns" : ""), partly_.text()});
  if (is_kept_)
    return function("void",
                    "load_tables(const Arguments& a, Rows& rows, const FragmentPosition& at)",
                    "    if constexpr (kFragment == 0) {\n" + begin_.text() + "    }\n" + loads,
                    "  template <u32 kFragment>\n");
  return function("void",
                  "load_ahead(const Arguments& a, const Rows& rows, SubTile& sub,\n"
                  "                                  const FragmentPosition& at)",
                  loads, "  template <u32 kBlock, u32 kFragment>\n");
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

}  // namespace coda::gpu
