// SPDX-License-Identifier: Apache-2.0
// A value is computed as soon as its sums are known: `lines_[n]` run after n walks.
#include "gpu/codegen/group_text.h"

#include <algorithm>

#include "coda/error.h"
#include "gpu/codegen/expressions.h"
#include "program/vocabulary.h"

namespace coda::gpu {
namespace {}  // namespace

GroupText::GroupText(const ProgramSizes& sizes, const program::TileMap& map,
                     const SpaceAnalysis& analysis, SpacePlaces& places, ValueNames& names,
                     RowValues& rows, LaunchArguments& arguments)
    : sizes_(sizes),
      map_(map),
      analysis_(analysis),
      places_(places),
      names_(names),
      rows_(rows),
      arguments_(arguments),
      values_(sizes, &map, &analysis.representative,
              {.place =
                   [this](const At& at) {
                     return filled("$ $", {std::to_string(map_.on_tile[at.step] ? -1 : at.reader),
                                           std::to_string(at.plane)});
                   },
               .source = [this](const At& at) { return source(at); },
               .name = [this](const At& at) { return map_.on_tile[at.step] ? element(at) : ""; },
               .write =
                   [this](const At& at, const std::string&, const std::string& text) {
                     lines_of(at.step).line("$.make([&](u32 eight, u32 pair) { return $; });",
                                            {field(at.step, at.plane), text});
                   }}),
      lines_(analysis.groups.walks + 1, Body(4)) {
  find_live();
}

void GroupText::find_live() {
  const std::vector<int>& steps = map_.spaces[analysis_.space].steps;
  for (auto i = steps.rbegin(); i != steps.rend(); ++i) {
    if (program::is_effect(step(*i))) live_.insert(*i);
    if (live_.contains(*i)) live_.insert(step(*i).operands.begin(), step(*i).operands.end());
  }
}

std::string GroupText::field(int i, int plane) {
  i = analysis_.representative[i];
  const bool is_split = analysis_.groups.layouts.at(i).planes() == 2;
  return "groups." + names_.of_step(i) + (!is_split ? "" : plane == 0 ? "_first" : "_second");
}

std::vector<int> GroupText::sums_of(uint32_t walk) const {
  std::vector<int> sums;
  for (const auto& [i, walks] : analysis_.groups.known) {
    if (program::sums_groups(step(i)) && walks == walk + 1 && live_.contains(i)) sums.push_back(i);
  }
  return sums;
}

// A step of the space whose pairs have this grouping.
int GroupText::step_with(const Dim& pairing) const {
  for (int i : map_.spaces[analysis_.space].steps) {
    if (map_.on_tile[i] && !map_.grouped[i] && map_.pairing[i] == pairing &&
        !program::is_selection(step(i)) && !program::is_effect(step(i)))
      return i;
  }
  throw InternalError("groups of columns that no value of their tile space has");
}

// The thread's first column in the group of eight columns that the loop variable `eight` counts.
std::string GroupText::eight_column() const { return sizes_.target().fragment.column("eight"); }

// The group of a base column.
std::string GroupText::column(int reader, int plane, const std::string& base_column) const {
  const TileLayout& layout = analysis_.groups.layouts.at(reader);
  return filled("($) / $", {places_.natural(step_with(layout.pairing), plane, base_column),
                            std::to_string(layout.group)});
}

std::string GroupText::place(int i, int plane, const std::string& row,
                             const std::string& base_column) {
  const Step& s = step(i);
  std::string at = column(i, plane, base_column);
  if (!s.repeat().is(1)) at += " % " + std::to_string(sizes_.stored_columns(s.tensor()));
  return filled("static_cast<u64>($) * $ + $", {row, arguments_.stride(s.tensor()), at});
}

// A tile value is a field of Groups. A per-column vector is computed in the line that reads it, at
// the first `eight` of the group.
std::optional<std::string> GroupText::source(const At& at) {
  const Step& s = step(at.step);
  if (map_.on_tile[at.step]) return tile(at);
  if (s.shape.cols.is(1)) return rows_.value(at.step);
  const std::string own = column(at.reader, at.plane, "(" + eight_column() + ")");
  if (program::is_column_index(s)) return "static_cast<float>(" + own + ")";
  if (!program::is_vector_load(s)) return std::nullopt;
  return filled(
      "($ < at.columns ? load_element<$>($, $) : 0.0f)",
      {eight_column(), arguments_.stored_type(s.tensor()), arguments_.pointer(s.tensor()),
       s.repeat().is(1) ? own
                        : "(" + own + ") % " + std::to_string(sizes_.stored_columns(s.tensor()))});
}

std::optional<std::string> GroupText::tile(const At& at) {
  const Step& s = step(at.step);
  const std::string name = field(at.step, at.plane);
  types_.emplace_back(filled("GroupValues<$, $>",
                             {std::to_string(analysis_.groups.layouts.at(at.step).base_group()),
                              std::to_string(analysis_.groups.span)}),
                      name.substr(name.find('.') + 1));
  Body& lines = lines_of(at.step);
  if (program::sums_groups(s)) {
    lines.line("$.$();", {name, program::takes_largest_of_groups(s) ? "finish_largest" : "finish"});
  } else if (program::is_tile_load(s)) {
    const std::string row =
        s.row_index() < 0 ? "row" : rows_.table_row(s.row_index(), s.tensor(), "[kBlock][pair]");
    lines.line("$.make([&](u32 eight, u32 pair) {", {name});
    lines.line("  const u32 row = $;", {sizes_.target().fragment.row("pair")});
    lines.line("  const u32 column = $;", {eight_column()});
    lines.line("  return row < at.rows && column < at.columns ? load_element<$>($, $) : 0.0f;",
               {arguments_.stored_type(s.tensor()), arguments_.pointer(s.tensor()),
                place(at.step, at.plane, row, "column")});
    lines.line("});");
  } else {
    return std::nullopt;
  }
  return element(at);
}

void GroupText::write_step(int i, int plane) {
  const Step& s = step(i);
  if (!program::is_tile_store(s)) {
    values_.value({i, i, plane});
    return;
  }
  lines_of(i).line("$.store<$>($, at, [&](u32 row, u32 column) { return $; });",
                   {field(s.operands[0], plane), arguments_.stored_type(s.tensor()),
                    arguments_.pointer(s.tensor()), place(i, plane, "row", "column")});
}

void GroupText::write() {
  for (int i : map_.spaces[analysis_.space].steps) {
    if (!map_.on_tile[i] || !map_.grouped[i] || !live_.contains(i)) continue;
    if (analysis_.representative[i] != i) continue;
    for (int plane = 0; plane < analysis_.groups.layouts.at(i).planes(); ++plane)
      write_step(i, plane);
  }
}

std::string GroupText::fields_text() const {
  std::string text = "\n  struct Groups {\n";
  for (const auto& [type, name] : types_) text += "    " + type + " " + name + ";\n";
  return text + "  };\n";
}

std::string GroupText::begin_text() const {
  return function("void",
                  "begin_groups(const Arguments& a, const Rows& rows, Groups& groups,\n"
                  "                                    const FragmentPosition& at)",
                  lines_[0].text(), "  template <u32 kBlock>\n");
}

std::string GroupText::end_text() const {
  std::string text;
  for (size_t walk = 0; walk + 1 < lines_.size(); ++walk) {
    text += "    if constexpr (kWalk == " + std::to_string(walk) + ") {\n" +
            lines_[walk + 1].text() + "    }\n";
  }
  return function("void",
                  "end_walk(const Arguments& a, const Rows& rows, Groups& groups,\n"
                  "                                const FragmentPosition& at)",
                  text, "  template <u32 kWalk, u32 kBlock>\n");
}

std::string GroupText::next_text() const {
  std::string text;
  for (const auto& [type, name] : types_) text += "    groups." + name + ".next_sub_tile();\n";
  return function("void", "next_sub_tile(Groups& groups)", text);
}

}  // namespace coda::gpu
