// SPDX-License-Identifier: Apache-2.0
// A step becomes at most one line for each of its planes (one if narrow, two if wide: the members
// of its pairs). Lines keep the order of the program, because its author decided how long values
// live. Steps that no effect needs are left out.
#include "gpu/codegen/space_text.h"

#include <algorithm>
#include <map>
#include <set>

#include "coda/error.h"
#include "device/layout/fragment.cuh"
#include "gpu/codegen/direct_loads.h"
#include "gpu/codegen/expressions.h"
#include "gpu/codegen/fragment_pass.h"
#include "gpu/codegen/function_text.h"
#include "gpu/codegen/group_text.h"
#include "gpu/codegen/pair_turns.h"
#include "gpu/codegen/row_values.h"
#include "gpu/codegen/space_operands.h"
#include "gpu/codegen/space_places.h"
#include "gpu/codegen/value_names.h"
#include "gpu/codegen/value_text.h"
#include "gpu/target/element.h"
#include "program/step_table.h"

namespace coda::gpu {
namespace {

// Not for ping-pong tiles, whose epilogue is hidden, and not with several blocks of rows, which
// would need one set of tables each.
bool can_keep_tables(const Target& target, const SpaceAnalysis& space,
                     const device::GemmConfig& config) {
  return target.loads_under_mainloop && space.repeated_planes != 0 && space.loads_ahead &&
         config.schedule == device::Schedule::cooperative && target.row_blocks(config) == 1 &&
         device::sub_tile_columns(config, space.traits()) > 1;
}

class SpaceWriter {
 public:
  SpaceWriter(const ProgramSizes& sizes, const program::TileMap& map, const SpaceAnalysis& analysis,
              const device::GemmConfig& config, bool keeps_tables, const std::string& name,
              LaunchArguments& arguments)
      : sizes_(sizes),
        map_(map),
        analysis_(analysis),
        config_(config),
        shape_(analysis.traits()),
        turns_(analysis, config),
        keeps_tables_(keeps_tables && can_keep_tables(sizes.target(), analysis, config)),
        name_(name),
        arguments_(arguments),
        operands_(sizes, map, analysis, config, name, arguments),
        places_(sizes, operands_, arguments),
        direct_loads_(sizes, places_, arguments, false),
        kept_loads_(sizes, places_, arguments, true),
        names_(sizes),
        rows_(sizes, analysis, operands_, names_, arguments),
        groups_(sizes, map, analysis, places_, names_, rows_, arguments),
        values_(sizes, &map, &analysis.representative,
                {.place = [this](const At& at) { return place(at); },
                 .source = [this](const At& at) { return source(at); },
                 .name = [this](const At& at) { return name_of(at); },
                 .write =
                     [this](const At&, const std::string& name, const std::string& text) {
                       pass_.body.line("const auto $ = $;", {name, text});
                     }}) {}

  std::string run() {
    find_needed();
    values_.write(tile_space().steps, needed_, [this](int i) { write_effect(i); });
    std::string groups;
    if (!groups_.empty()) {
      write_walks();
      groups_.write();
      groups = groups_.fields_text();
    }
    return "struct " + name_ + " {\n" + operands_.shape_text(!kept_loads_.empty()) +
           operands_.extents() + operands_.operands() + operands_.planes() + rows_text() + groups +
           sub_tile_text() + walks_text() + fragment_text() + end_text() + "};\n";
  }

 private:
  using At = ValueText::At;
  const Step& step(int i) const { return sizes_.step(i); }
  const TensorDecl& tensor(int t) const { return sizes_.tensor(t); }
  const TileSpace& tile_space() const { return map_.spaces[analysis_.space]; }
  int representative(int i) const { return analysis_.representative[i]; }
  const FragmentMap& fragment() const { return sizes_.target().fragment; }
  int64_t half(int i) const { return operands_.half(i); }
  int planes_of(int i) const { return half(i) == 0 ? 1 : 2; }
  std::string own(const std::string& what) const { return operands_.own(what); }

  // ---- Values.

  std::string value(int i, int plane) { return values_.value({i, i, plane}); }
  const std::string& value_name(int i) { return names_.of_step(i); }
  bool is_row_like(int i) const { return step(i).shape.cols.is(1); }  // scalars too

  // Each pass over fragments has its own values. A vector is computed for the columns of each pair.
  std::string place(const At& at) const {
    const bool is_tile = map_.on_tile[at.step];
    return filled("$ $ $",
                  {std::to_string(pass_.walk), std::to_string(is_tile ? -1 : half(at.reader)),
                   std::to_string(at.plane)});
  }

  // Planes of wide values have different names.
  std::string name_of(const At& at) {
    const bool is_tile = map_.on_tile[at.step];
    const bool is_wide = half(is_tile ? at.step : at.reader) != 0;
    const std::string suffix = !is_wide ? "" : at.plane == 0 ? "_first" : "_second";
    const std::string wanted = value_name(at.step) + suffix;
    return is_tile ? wanted : names_.make(wanted + (is_wide ? "" : "_at"));
  }

  std::optional<std::string> source(const At& at) {
    const Step& s = step(at.step);
    if (!map_.on_tile[at.step]) return is_row_like(at.step) ? rows_.value(at.step) : column(at);
    std::string text;
    switch (s.kind()) {
      case StepKind::gemm: text = accumulators(at); break;
      case StepKind::load_tile: return load(at);
      case StepKind::repeat_group:
        text = filled("$$.at<kFragment>(pair)",
                      {pass_.is_walk() ? "" : "sub.", groups_.field(s.operands[0], at.plane)});
        break;
      case StepKind::as_stored:
        if (size_of(s.dtype()) >= size_of(DType::f32)) return values_.operand(at, 0);
        if (!is_16_bits(s.dtype())) return std::nullopt;
        text = filled("unpack<$>($)", {element_text(s.dtype()), packed_value(at)});
        break;
      default: return std::nullopt;
    }
    return made(at, text);
  }
  std::string made(const At& at, const std::string& text) {
    std::string made = name_of(at);
    pass_.body.line("const auto $ = $;", {made, text});
    return made;
  }

  // In the main pass, pairs may take turns.
  std::string accumulators(const At& at) const {
    const int member = planes_of(at.step) == 1 ? -1 : at.plane;
    const auto part =
        std::find(analysis_.parts.begin(), analysis_.parts.end(), Part{at.step, member});
    const std::string text =
        filled("pair_of(accumulators[$], pair)", {std::to_string(part - analysis_.parts.begin())});
    return pass_.is_walk() ? text : turns_.begin_with(text);
  }

  // A per-column vector: loaded before the sub-tile or fragment, or computed from column numbers.
  std::optional<std::string> column(const At& at) {
    const Step& s = step(at.step);
    const bool counts = program::is_column_index(s);
    if (!counts && !program::is_vector_load(s)) return std::nullopt;
    std::string made = name_of(at);
    const auto place = [&](const std::string& column) {
      return places_.natural(at.reader, at.plane, column);
    };
    if (counts && places_.are_neighbours(at.reader)) {
      pass_.body.line("const ColumnPair $ = column_pair($);", {made, place("column")});
      return made;
    }
    if (counts) {
      pass_.body.line("const Elements<2> ${{static_cast<float>($), static_cast<float>($)}};",
                      {made, place("column"), place("(column + 1)")});
      return made;
    }
    const std::string type = arguments_.stored_type(s.tensor());
    const std::string pointer = arguments_.pointer(s.tensor());
    const bool repeats = !s.repeat().is(1);
    const auto stored_place = [&](const std::string& column) {
      std::string at_column = place(column);
      if (!repeats) return at_column;
      return "(" + at_column + ") % " + std::to_string(sizes_.stored_columns(s.tensor()));
    };
    const bool are_neighbours = places_.are_neighbours(at.reader) &&
                                (!repeats || sizes_.stored_columns(s.tensor()) % 2 == 0);
    if (!are_neighbours || pass_.is_walk()) {
      pass_.body.line(
          "const Elements<2> $ = load_two<$>($, $, $, inside_pair(column, at.columns));",
          {made, type, pointer, stored_place("column"), stored_place("(column + 1)")});
      return made;
    }
    if (analysis_.loads_columns_by_fragment && !is_16_bits(tensor(s.tensor()).dtype)) {
      const auto side = [&](const std::string& column) {
        return filled("load_pair<$>($, $, inside_pair($, at.columns))",
                      {type, pointer, stored_place(column), column});
      };
      pass_.before.line("const Elements<2> $[2] = {$,", {made, side("at.column")});
      pass_.before.line("$$};",
                        {std::string(made.size() + 26, ' '), side(fragment().second_column())});
      return made + "[" + FragmentMap::half() + "]";
    }
    sub_fields_.line("ColumnValues<$> $;", {type, made});
    sub_lines_.line("sub.$.load($, at, [&](u32 column) { return $; });",
                    {made, pointer, stored_place("column")});
    return filled("sub.$.at(kFragment, pair)", {made});
  }

  // An as_stored value in its storage type: packed once for both its store and its readers.
  std::string packed_value(const At& at) {
    std::string& packed = pass_.packed_names[{at.step, at.plane}];
    if (!packed.empty()) return packed;
    const std::string operand = values_.operand(at, 0);
    packed = names_.make(name_of(at) + "_bits");
    pass_.body.line("const u32 $ = pack<$>($);",
                    {packed, element_text(step(at.step).dtype()), operand});
    return packed;
  }

  std::string load(const At& at) {
    const Step& s = step(at.step);
    const TileMove& move = *analysis_.find_load(at.step);
    const std::string type = arguments_.stored_type(s.tensor());
    if (move.movement == Movement::staged) {
      std::string bits = filled("loaded[$][pair]", {std::to_string(move.plane + at.plane)});
      if (!pass_.is_walk()) bits = turns_.begin_with_load(bits);
      return made(at, filled("unpack<$>($)", {type, bits}));
    }
    if (move.movement == Movement::bytes) {
      return made(at, filled("pair_of_bytes<$>(loaded[$], pair)",
                             {type, std::to_string(move.plane + at.plane)}));
    }
    const bool is_kept = !pass_.is_walk() && move.is_repeated && keeps_tables_;
    const std::string block = is_kept ? "[0]" : "[kBlock]";
    const auto table_row = [&](const std::string& side) {
      return rows_.table_row(s.row_index(), s.tensor(), block + side);
    };
    const std::string row = s.row_index() >= 0 ? table_row("[" + FragmentMap::side() + "]") : "row";
    const std::string value =
        filled("load_$<$>($, $, inside)",
               {places_.pair_or_two(at.step), type, arguments_.pointer(s.tensor()),
                places_.pair(at.step, at.plane, row)});
    if (!analysis_.loads_early || pass_.is_walk()) return made(at, value);
    const std::string array = name_of(at);
    if (analysis_.loads_ahead && places_.is_contiguous(at.step)) {
      DirectLoad load{.step = at.step,
                      .plane = at.plane,
                      .name = array,
                      .row = {"at.row", fragment().second_row()},
                      .value = value};
      if (s.row_index() >= 0) {
        for (const int side : {0, 1}) load.row[side] = table_row(side == 0 ? "[0]" : "[1]");
      }
      return (is_kept ? kept_loads_ : direct_loads_).add(load);
    }
    pass_.before.line("Elements<2> $[kPairs];", {array});
    pass_.early.line("$[pair] = $;", {array, value});
    return array + "[pair]";
  }

  // ---- The fragment.

  // Finds the values that effects need, directly or through other values, by a trial run that
  // writes values on demand.
  void find_needed() {
    LaunchArguments unused(sizes_);
    SpaceWriter trial(sizes_, map_, analysis_, config_, keeps_tables_, name_, unused);
    for (int i : tile_space().steps) trial.write_effect(i);
    needed_ = trial.values_.made();
  }

  // The sums of each walk, from values that the walk computes as the fragment does.
  void write_walks() {
    for (uint32_t walk = 0; walk < analysis_.groups.walks; ++walk) {
      std::swap(pass_, walks_.emplace_back());
      pass_.walk = static_cast<int>(walk);
      for (int i : groups_.sums_of(walk)) {
        for (int plane = 0; plane < planes_of(step(i).operands[0]); ++plane) {
          const std::string added = value(step(i).operands[0], plane);
          pass_.body.line("$.$<kFragment>(pair, $);",
                          {groups_.field(i, plane),
                           program::takes_largest_of_groups(step(i)) ? "raise" : "add", added});
        }
      }
      std::swap(pass_, walks_.back());
    }
  }

  void write_effect(int i) {
    if (map_.grouped[i]) return;
    switch (step(i).kind()) {
      case StepKind::store_tile: return store(i);
      case StepKind::store_vector: return select(i);
      case StepKind::store_transposed: return leave_bytes(i);
      case StepKind::abs_max_into: return raise_maximum(i);
      case StepKind::row_partial: return row_partial(i);
      case StepKind::column_partial: return column_partial(i);
      default: return;
    }
  }

  void store(int i) {
    const Step& s = step(i);
    const auto found = std::find_if(analysis_.stores.begin(), analysis_.stores.end(),
                                    [&](const TileMove& move) { return move.step == i; });
    const DType type = tensor(s.tensor()).dtype;
    if (found->movement == Movement::bytes) return leave_bytes(i);
    if (found->movement == Movement::added && places_.is_contiguous(i)) return add_sub_tile(i);
    for (int plane = 0; plane < planes_of(i); ++plane) {
      if (found->movement == Movement::staged) {
        const std::string bits = bits_to_store(s.operands[0], plane, type);
        const std::string place = filled("stored[$][pair]", {std::to_string(found->plane + plane)});
        pass_.body.line("$ = $;", {place, bits});
        turns_.end_with(place);
        continue;
      }
      const bool adds = found->movement == Movement::added;
      const std::string moved = adds ? values_.operand({s.operands[0], -1, plane}, added_operand(i))
                                     : value(s.operands[0], plane);
      const std::string where =
          filled("$, $, inside", {arguments_.pointer(s.tensor()), places_.pair(i, plane, "row")});
      if (adds) {
        pass_.body.line("add_$($, Elements<2>($));", {places_.pair_or_two(i), where, moved});
      } else {
        pass_.body.line("store_$<$>($, $);",
                        {places_.pair_or_two(i), element_text(type), where, moved});
      }
      turns_.end_with(moved);
    }
  }

  // Both copies of a value have the same bytes; the first copy packs them.
  void leave_bytes(int i) {
    const ByteMove& move = *analysis_.find_bytes(i);
    const std::string type = arguments_.stored_type(step(i).tensor());
    for (int plane = 0; plane < planes_of(move.from) && packed_bytes_.insert({&move, plane}).second;
         ++plane) {
      const std::string left = value(move.from, plane);
      pass_.body.line("put_bytes<$>(stored[$], pair, $);",
                      {type, std::to_string(shape_.stores + move.plane + plane), left});
      turns_.end_with(left);
    }
  }

  void raise_maximum(int i) {
    const int from = step(i).operands[0];
    const std::string name = names_.make(value_name(from) + "_largest");
    sub_fields_.line("float $[2] = {0.0f, 0.0f};", {name});
    end_.line("raise_magnitude($, sub.$, $, at);",
              {arguments_.pointer(step(i).tensor()), name, rows_.known_maximum(step(i).tensor())});
    for (int plane = 0; plane < planes_of(from); ++plane) {
      const std::string raised = value(from, plane);
      pass_.body.line("add_pair_magnitudes(sub.$[$], $, $);",
                      {name, FragmentMap::side(), raised, valid_columns()});
      turns_.end_with(raised);
    }
  }

  // The number of valid columns of a pair.
  std::string valid_columns() const {
    return analysis_.ragged_columns ? "inside_pair(column, at.columns)" : "2";
  }

  // The operand of the stored sum that is added in memory (not the load of the old value).
  int added_operand(int i) const {
    const Step& first = step(step(step(i).operands[0]).operands[0]);
    return program::is_tile_load(first) && first.tensor() == step(i).tensor() ? 1 : 0;
  }
  void add_sub_tile(int i) {
    const std::string first = places_.natural(i, 0, "at.column");
    const std::string values = kept_values(step(step(i).operands[0]).operands[added_operand(i)]);
    const std::string place =
        planes_of(i) == 1
            ? first
            : filled("plane == 0 ? $ : $", {first, places_.natural(i, 1, "at.column")});
    end_.line(
        "add_sub_tile($, $, $, at, [&](u32 plane) { return $; });",
        {arguments_.pointer(step(i).tensor()), arguments_.stride(step(i).tensor()), values, place});
  }

  // A value packed for a store to `type`. An as_stored value of the same type is already packed.
  std::string bits_to_store(int operand, int plane, DType type) {
    int i = representative(operand);
    int p = plane;
    while (program::merges_pairs(step(i)) || program::splits_pairs(step(i))) {
      const bool merges = program::merges_pairs(step(i));
      const int next = merges ? p : 0;
      p = merges ? 0 : step(i).which();
      i = representative(step(i).operands[next]);
    }
    if (program::is_rounding(step(i)) && step(i).dtype() == type) return packed_value({i, i, p});
    return filled("pack<$>($)", {element_text(type), value(operand, plane)});
  }

  // For bf16-rounded values the packed bits are kept, so that two values are compared at a time. If
  // columns are requested one by one, or in fp16 (whose values must be converted), that would take
  // too many registers.
  std::string gradient_type(int i) const {
    const bool keeps_bits = program::is_rounding(step(i)) && step(i).dtype() == DType::bf16 &&
                            !analysis_.ragged_columns;
    return keeps_bits ? "StoredPair<Element::bf16>" : "Elements<2>";
  }

  // All planes of a value, kept until the end of the sub-tile for effects there.
  const std::string& kept_values(int i) {
    i = representative(i);
    std::string& name = kept_values_[i];
    if (!name.empty()) return name;
    const std::string made = names_.make(value_name(i) + "_values");
    sub_fields_.line("$ $[$][kFragments][kPairs];",
                     {gradient_type(i), made, std::to_string(planes_of(i))});
    name = "sub." + made;
    for (int p = 0; p < planes_of(i); ++p) {
      const std::string kept = value(i, p);
      pass_.body.line("$[$][kFragment][pair] = $;", {name, std::to_string(p), kept});
      turns_.end_with(kept);
    }
    return name;
  }

  void select(int i) {
    const Step& s = step(i);
    const Step& selection = step(s.operands[0]);
    const int source = selection.operands[0];
    const std::string columns =
        arguments_.number(own("selected_columns"), sizes_.size(step(source).shape.cols));
    end_.line("store_selected<$>($, $, $[kBlock], $, $, at, [&](u32 column) { return $; });",
              {arguments_.stored_type(s.tensor()), arguments_.pointer(s.tensor()),
               arguments_.stride(s.tensor()), rows_.index(step(selection.operands[1]).tensor()),
               columns, kept_values(source), places_.plane_column(source)});
  }

  // A sum that only its reduction reads is added term by term, so that fewer values are live.
  using Terms = std::vector<std::string>;
  Terms terms(int i, int plane) {
    const Step& s = step(i);
    const bool splits = program::applies(s, Elementwise::add) && uses(i) == 1 &&
                        map_.on_tile[s.operands[0]] && map_.on_tile[s.operands[1]];
    if (!splits) return {value(i, plane)};
    Terms all = terms(s.operands[0], plane);
    for (std::string& term : terms(s.operands[1], plane)) all.push_back(std::move(term));
    return all;
  }
  int uses(int value) const {
    int count = 0;
    for (const Step& s : sizes_.program().steps)
      count += static_cast<int>(std::count(s.operands.begin(), s.operands.end(), value));
    return count;
  }

  void row_partial(int i) {
    const Step& s = step(i);
    if (info(s.partial()).lanes > 1) return row_reduction(i);
    const std::string name = names_.make(tensor(step(i).tensor()).name);
    sub_fields_.line("Reduced<$> $[2];", {reduction_text(s.partial()), name});
    for (int plane = 0; plane < planes_of(s.operands[0]); ++plane) {
      const bool is_sum = s.partial() == PartialKind::sum;
      for (const std::string& term :
           is_sum ? terms(s.operands[0], plane) : Terms{value(s.operands[0], plane)}) {
        pass_.body.line("add_to_row(sub.$[$], $, $);",
                        {name, FragmentMap::side(), term, valid_columns()});
        turns_.end_with(term);
      }
    }
    end_.line("store_row_partial($, $, sub.$, at);",
              {arguments_.pointer(s.tensor()), arguments_.stride(s.tensor()), name});
  }

  // For values that are read twice: after all of them are computed.
  void row_reduction(int i) {
    const Step& s = step(i);
    end_.line(
        "store_row_reduction<$>($, $, $, at, $);",
        {reduction_text(s.partial()), arguments_.pointer(s.tensor()), arguments_.stride(s.tensor()),
         kept_values(s.operands[0]), analysis_.ragged_columns ? "at.columns" : "~0u"});
  }

  void column_partial(int i) {
    const Step& s = step(i);
    const int source = s.operands[0];
    const std::string kind = reduction_text(s.partial());
    for (int plane = 0; plane < planes_of(source); ++plane) {
      const std::string reduced = value(source, plane);
      const std::string name = names_.make(tensor(s.tensor()).name);
      const std::string all = names_.make(name + "_values");
      sub_fields_.line("ColumnReduction<$> $;", {kind, name});
      pass_.before.line("Elements<2> $[kPairs];", {all});
      pass_.body.line("$[pair] = $;", {all, reduced});
      turns_.end_with(reduced);
      pass_.after.line("sub.$.template add<kFragment>($, at);", {name, all});
      const std::string place =
          filled("scratch + $ * kColumnScratchBytes", {std::to_string(column_fields_++)});
      staged_.line("sub.$.stage($, at);", {name, place});
      end_.line("store_column_partial<$>($, $, $, at, [&](u32 column) { return $; });",
                {kind, arguments_.pointer(s.tensor()), arguments_.stride(s.tensor()), place,
                 places_.natural(source, plane, "column")});
    }
  }

  // ---- Parts of the struct.

  std::string rows_text() {
    return "\n  struct Rows {\n" + rows_.fields() + kept_loads_.fields() + "  };\n" +
           function("void",
                    "begin_tile(const Arguments& a, Rows& rows, const FragmentPosition& at)",
                    rows_.begin(sizes_.size(tile_space().shape.rows))) +
           kept_loads_.function_text();
  }

  std::string sub_tile_text() const {
    return "\n  struct SubTile {\n" + sub_fields_.text() +
           (groups_.empty() ? "" : "    Groups groups;\n") + turns_.field_line() +
           direct_loads_.fields() + "  };\n" + direct_loads_.function_text() +
           function("void",
                    "begin_sub_tile(const Arguments& a, const Rows& rows, SubTile& sub,\n"
                    "                                      const FragmentPosition& at)",
                    sub_lines_.text() + direct_loads_.begin(), "  template <u32 kBlock>\n");
  }

  // The accumulators and planes of a fragment as function parameters.
  std::string fragment_parameters() const {
    return "const float (&accumulators)[" + std::to_string(shape_.parts) +
           "][8],\n                             const u32 (&loaded)[" +
           std::to_string(std::max(1u, shape_.loads)) + "][4],\n                             ";
  }

  std::string walks_text() const {
    if (groups_.empty()) return "";
    std::string lines;
    for (size_t walk = 0; walk < walks_.size(); ++walk) {
      lines += filled("    if constexpr (kWalk == $) {\n$    }\n",
                      {std::to_string(walk), fragment_lines(fragment(), walks_[walk], "", "")});
    }
    return groups_.begin_text() +
           function("void",
                    "walk_groups(const Arguments& a, const Rows& rows, Groups& "
                    "groups,\n                             " +
                        fragment_parameters() + "const FragmentPosition& at)",
                    lines, "  template <u32 kWalk, u32 kBlock, u32 kFragment>\n") +
           groups_.end_text() + groups_.next_text();
  }

  std::string fragment_text() const {
    const std::string lines =
        turns_.fragment_line() +
        fragment_lines(fragment(), pass_, direct_loads_.ahead(), turns_.last_line());
    return function("void",
                    "fragment(const Arguments& a, const Rows& rows, SubTile& sub,\n"
                    "                             " +
                        fragment_parameters() + "u32 (&stored)[" +
                        std::to_string(std::max(1u, shape_.stores + shape_.bytes)) +
                        "][4], const FragmentPosition& " + turns_.position() + ")",
                    lines, "  template <u32 kBlock, u32 kFragment>\n");
  }

  std::string end_text() const {
    return function(
        "void",
        "end_sub_tile(const Arguments& a, const Rows& rows, SubTile& sub,\n"
        "                                    const FragmentPosition& at, SharedAddress scratch)",
        staged_.text() + (staged_.empty() ? "" : "    synchronize_warpgroup();\n") + end_.text(),
        "  template <u32 kBlock>\n");
  }

  const ProgramSizes& sizes_;
  const program::TileMap& map_;
  const SpaceAnalysis& analysis_;
  const device::GemmConfig& config_;
  const device::EpilogueTraits shape_;
  PairTurns turns_;
  const bool keeps_tables_;
  const std::string name_;
  LaunchArguments& arguments_;
  SpaceOperands operands_;
  SpacePlaces places_;
  DirectLoads direct_loads_;
  DirectLoads kept_loads_;

  ValueNames names_;
  RowValues rows_;
  GroupText groups_;

  ValueText values_;
  ValueText::Made needed_;
  std::map<int, std::string> kept_values_;  // by step
  std::set<std::pair<const ByteMove*, int>> packed_bytes_;
  Pass pass_;                // the current pass
  std::vector<Pass> walks_;  // one for each walk over groups
  uint32_t column_fields_ = 0;

  Body sub_fields_{4};
  Body sub_lines_{4};
  Body staged_{4};  // writes column partials into scratch memory before the warps synchronise
  Body end_{4};
};

}  // namespace

std::string space_text(const ProgramSizes& sizes, const program::TileMap& map,
                       const SpaceAnalysis& analysis, const device::GemmConfig& config,
                       bool keeps_tables, const std::string& name, LaunchArguments& arguments) {
  return SpaceWriter(sizes, map, analysis, config, keeps_tables, name, arguments).run();
}

}  // namespace coda::gpu
