// SPDX-License-Identifier: Apache-2.0
// A step becomes at most one line for each of its planes (narrow values have one, wide ones two:
// the members of their pairs), in the order of the program: whoever wrote it chose how long values
// live. What no effect needs is left out.
#include "hopper/codegen/space_text.h"

#include <algorithm>
#include <map>

#include "coda/error.h"
#include "device/layout/fragment.cuh"
#include "hopper/arch/element.h"
#include "hopper/codegen/direct_loads.h"
#include "hopper/codegen/expressions.h"
#include "hopper/codegen/function_text.h"
#include "hopper/codegen/group_text.h"
#include "hopper/codegen/pair_turns.h"
#include "hopper/codegen/pass_text.h"
#include "hopper/codegen/row_values.h"
#include "hopper/codegen/space_operands.h"
#include "hopper/codegen/space_places.h"
#include "hopper/codegen/value_names.h"
#include "program/step_table.h"

namespace coda::hopper {
namespace {

// A ping-pong tile's epilogue is hidden, and with several blocks of rows there are as many tables.
bool can_keep_tables(const SpaceAnalysis& space, const device::GemmConfig& config) {
  return space.repeated_planes != 0 && space.loads_ahead &&
         config.schedule == device::Schedule::cooperative && config.blocks_m() == 1 &&
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
        turns_(analysis),
        takes_turns_(!turns_.taken() && device::takes_turns(config, shape_)),
        keeps_tables_(keeps_tables && can_keep_tables(analysis, config)),
        name_(name),
        arguments_(arguments),
        operands_(sizes, map, analysis, config, name, arguments),
        places_(sizes, operands_, arguments),
        direct_loads_(sizes, places_, arguments),
        kept_loads_(sizes, places_, arguments),
        names_(sizes),
        rows_(sizes, analysis, operands_, places_, names_, arguments),
        groups_(sizes, map, analysis, places_, names_, rows_, arguments) {}

  std::string run() {
    find_needed();
    write_fragment();
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
  const Step& step(int i) const { return sizes_.step(i); }
  const TensorDecl& tensor(int t) const { return sizes_.tensor(t); }
  const TileSpace& tile_space() const { return map_.spaces[analysis_.space]; }
  int representative(int i) const { return analysis_.representative[i]; }
  int64_t half(int i) const { return operands_.half(i); }
  bool is_concatenated(int i) const { return operands_.is_concatenated(i); }
  int planes_of(int i) const { return half(i) == 0 ? 1 : 2; }
  std::string own(const std::string& what) const { return operands_.own(what); }

  // ---- Names.

  const std::string& value_name(int i) { return names_.of_step(i); }
  // Planes of wide values are told apart.
  std::string plane_name(int i, int plane) {
    return value_name(i) + (planes_of(i) == 1 ? "" : plane == 0 ? "_first" : "_second");
  }

  // ---- Places in memory.

  int64_t base() const { return operands_.base(); }
  std::string stride(int t) { return places_.stride(t); }

  // ---- Vectors of columns: loaded before the sub-tile or the fragment.

  bool is_row_like(int i) const { return step(i).shape.cols.is(1); }  // scalars too

  // A per-column value in plane `plane` of a value that lies in the tile as step `reader` does.
  std::string column_value(int i, int reader, int plane) {
    i = representative(i);
    const Step& s = step(i);
    if (is_row_like(i)) return rows_.value(i);
    const auto key = std::make_tuple(i, half(reader), plane);
    std::string& name = pass_.column_names[key];
    if (!name.empty()) return name;
    const std::string suffix = half(reader) == 0 ? "" : plane == 0 ? "_first" : "_second";
    const std::string made = names_.make(value_name(i) + suffix + (suffix.empty() ? "_at" : ""));
    name = made;
    if (program::is_column_index(s)) {
      pass_.body.line("const Elements<2> " + made + "{{static_cast<float>(" +
                      places_.natural(reader, plane, "column") + "), static_cast<float>(" +
                      places_.natural(reader, plane, "(column + 1)") + ")}};");
    } else if (program::is_vector_load(s) && (!places_.are_neighbours(reader) || pass_.is_walk)) {
      pass_.body.line(
          "const Elements<2> " + made + " = load_two<" + element_text(tensor(s.tensor()).dtype) +
          ">(" + arguments_.pointer(s.tensor()) + ", " + places_.natural(reader, plane, "column") +
          ", " + places_.natural(reader, plane, "(column + 1)") +
          ", inside_pair(column, at.columns));");
    } else if (program::is_vector_load(s) && analysis_.loads_columns_by_fragment &&
               size_of(tensor(s.tensor()).dtype) != 2) {
      const auto side = [&](const std::string& column) {
        return "load_pair<" + element_text(tensor(s.tensor()).dtype) + ">(" +
               arguments_.pointer(s.tensor()) + ", " + places_.natural(reader, plane, column) +
               ", inside_pair(" + column + ", at.columns))";
      };
      pass_.before.line("const Elements<2> " + made + "[2] = {" + side("at.column") + ",");
      pass_.before.line(std::string(made.size() + 26, ' ') + side("(at.column + 8)") + "};");
      name = made + "[pair / 2]";
    } else if (program::is_vector_load(s)) {
      sub_fields_.line("ColumnValues<" + element_text(tensor(s.tensor()).dtype) + "> " + made +
                       ";");
      sub_lines_.line("sub." + made + ".load(" + arguments_.pointer(s.tensor()) +
                      ", at, [&](u32 column) { return " + places_.natural(reader, plane, "column") +
                      "; });");
      name = "sub." + made + ".at(kFragment, pair)";
    } else {
      std::vector<std::string> operands;
      for (int operand : s.operands) operands.push_back(column_value(operand, reader, plane));
      pass_.body.line("const auto " + made + " = " + vector_text(s, operands) + ";");
    }
    return name;
  }

  // ---- The fragment.

  // The text of plane `plane` of a tile value.
  std::string tile_value(int i, int plane) {
    i = representative(i);
    const Step& s = step(i);
    if (program::splits_pairs(s)) return tile_value(s.operands[0], s.which());
    if (program::merges_pairs(s)) return tile_value(s.operands[plane], 0);
    const auto key = std::make_pair(i, plane);
    const auto found = pass_.tile_names.find(key);
    if (found != pass_.tile_names.end()) return found->second;
    const std::string name = plane_name(i, plane);
    const std::string text = make_tile_value(i, plane, name);
    return pass_.tile_names[key] = text;
  }

  // Writes the line that makes it, and returns how it is read.
  std::string make_tile_value(int i, int plane, const std::string& name) {
    const Step& s = step(i);
    switch (s.kind()) {
      case StepKind::gemm: {
        const int member = planes_of(i) == 1 ? -1 : plane;
        const auto part =
            std::find(analysis_.parts.begin(), analysis_.parts.end(), Part{i, member});
        const std::string at = std::to_string(part - analysis_.parts.begin());
        pass_.body.line("const auto " + name + " = " +
                        begin_with("pair_of(accumulators[" + at + "], pair)") + ";");
        return name;
      }
      case StepKind::load_tile: return load(i, plane, name);
      case StepKind::repeat_group:
        pass_.body.line("const auto " + name + " = " + (pass_.is_walk ? "" : "sub.") +
                        groups_.field(s.operands[0], plane) + ".at<kFragment>(pair);");
        return name;
      case StepKind::as_stored: {
        std::string operand = operand_value(i, 0, plane);
        if (!is_operand(s.dtype())) return operand;
        pass_.body.line("const auto " + name + " = unpack<" + element_text(s.dtype()) + ">(" +
                        packed_value(i, plane) + ");");
        return name;
      }
      default: {
        invariant(program::is_elementwise(s), "an unknown kind of tile value");
        std::vector<std::string> operands;
        for (size_t k = 0; k < s.operands.size(); ++k)
          operands.push_back(operand_value(i, static_cast<int>(k), plane));
        pass_.body.line("const auto " + name + " = " + expression(s.op(), operands) + ";");
        return name;
      }
    }
  }

  // In a fragment pairs may take turns.
  std::string begin_with(const std::string& value) const {
    return pass_.is_walk ? value : turns_.begin_with(value);
  }

  std::string operand_value(int i, int operand, int plane) {
    const int o = step(i).operands[operand];
    return map_.on_tile[o] ? tile_value(o, plane) : column_value(o, i, plane);
  }

  // An as_stored value as it is stored: packed once, for its store and its readers.
  std::string packed_value(int i, int plane) {
    const auto key = std::make_pair(i, plane);
    const auto found = pass_.packed_names.find(key);
    if (found != pass_.packed_names.end()) return found->second;
    const std::string operand = operand_value(i, 0, plane);
    const std::string name = names_.make(plane_name(i, plane) + "_bits");
    pass_.body.line("const u32 " + name + " = pack<" + element_text(step(i).dtype()) + ">(" +
                    operand + ");");
    return pass_.packed_names[key] = name;
  }

  std::string load(int i, int plane, const std::string& name) {
    const Step& s = step(i);
    const TileMove& move = *analysis_.find_load(i);
    const DType type = tensor(s.tensor()).dtype;
    if (move.movement == Movement::staged) {
      std::string bits = "loaded[" + std::to_string(move.plane + plane) + "][pair]";
      if (!pass_.is_walk) {
        if (takes_turns_ && shape_.stores != 0)
          bits = "after_pair<kBlock, kFragment>(" + bits + ", stored, pair, at)";
        takes_turns_ = false;
      }
      pass_.body.line("const auto " + name + " = unpack<" + element_text(type) + ">(" +
                      begin_with(bits) + ");");
      return name;
    }
    const bool is_kept = !pass_.is_walk && move.is_repeated && keeps_tables_;
    const std::string block = is_kept ? "[0]" : "[kBlock]";
    const std::string row = s.row_index() >= 0
                                ? rows_.table_row(s.row_index(), s.tensor(), block + "[pair % 2]")
                                : "row";
    const std::string value = std::string("load_") + places_.pair_or_two(i) + "<" +
                              element_text(type) + ">(" + arguments_.pointer(s.tensor()) + ", " +
                              places_.pair(i, plane, row) + ", inside)";
    if (!analysis_.loads_early || pass_.is_walk) {
      pass_.body.line("const auto " + name + " = " + value + ";");
      return name;
    }
    if (analysis_.loads_ahead && places_.is_contiguous(i)) {
      DirectLoad load{.step = i,
                      .plane = plane,
                      .name = name,
                      .row = {"at.row", "(at.row + 8)"},
                      .value = value};
      if (s.row_index() >= 0) {
        for (const int side : {0, 1})
          load.row[side] =
              rows_.table_row(s.row_index(), s.tensor(), block + "[" + std::to_string(side) + "]");
      }
      return is_kept ? kept_loads_.add(load) : direct_loads_.add(load);
    }
    pass_.before.line("Elements<2> " + name + "[kPairs];");
    pass_.early.line(name + "[pair] = " + value + ";");
    return name + "[pair]";
  }

  // The values that effects need, directly or through others: a trial run that writes values as
  // they are asked for.
  void find_needed() {
    LaunchArguments unused(sizes_);
    SpaceWriter trial(sizes_, map_, analysis_, config_, keeps_tables_, name_, unused);
    for (int i : tile_space().steps) trial.write_effect(i);
    for (const auto& [key, name] : trial.pass_.tile_names) needed_.insert(key);
  }

  void write_fragment() {
    for (int i : tile_space().steps) {
      for (int plane = 0; plane < 2; ++plane) {
        if (needed_.contains({i, plane})) tile_value(i, plane);
      }
      write_effect(i);
    }
  }

  // What each walk adds up, from values that it makes as the fragment makes them.
  void write_walks() {
    for (uint32_t walk = 0; walk < analysis_.groups.walks; ++walk) {
      std::swap(pass_, walks_.emplace_back());
      pass_.is_walk = true;
      for (int i : groups_.sums_of(walk)) {
        for (int plane = 0; plane < planes_of(step(i).operands[0]); ++plane) {
          const std::string value = tile_value(step(i).operands[0], plane);
          pass_.body.line(groups_.field(i, plane) + ".add<kFragment>(pair, " + value + ");");
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
    if (found->movement == Movement::added && places_.is_contiguous(i)) return add_sub_tile(i);
    for (int plane = 0; plane < planes_of(i); ++plane) {
      if (found->movement == Movement::staged) {
        const std::string bits = bits_to_store(s.operands[0], plane, type);
        const std::string place = "stored[" + std::to_string(found->plane + plane) + "][pair]";
        pass_.body.line(place + " = " + bits + ";");
        turns_.end_with(place);
      } else if (found->movement == Movement::added) {
        add_in_memory(i, plane);
      } else {
        const std::string value = tile_value(s.operands[0], plane);
        pass_.body.line(std::string("store_") + places_.pair_or_two(i) + "<" + element_text(type) +
                        ">(" + arguments_.pointer(s.tensor()) + ", " +
                        places_.pair(i, plane, "row") + ", inside, " + value + ");");
        turns_.end_with(value);
      }
    }
  }

  // Which operand of the stored sum is added to memory: not the load of what is there.
  int added_operand(int i) const {
    const Step& first = step(step(step(i).operands[0]).operands[0]);
    return program::is_tile_load(first) && first.tensor() == step(i).tensor() ? 1 : 0;
  }
  void add_in_memory(int i, int plane) {
    const std::string value = operand_value(step(i).operands[0], added_operand(i), plane);
    pass_.body.line(std::string("add_") + places_.pair_or_two(i) + "(" +
                    arguments_.pointer(step(i).tensor()) + ", " + places_.pair(i, plane, "row") +
                    ", inside, Elements<2>(" + value + "));");
    turns_.end_with(value);
  }
  void add_sub_tile(int i) {
    const std::string first = places_.natural(i, 0, "at.column");
    const std::string values = kept_values(step(step(i).operands[0]).operands[added_operand(i)]);
    end_.line("add_sub_tile(" + arguments_.pointer(step(i).tensor()) + ", " +
              stride(step(i).tensor()) + ", " + values + ", at, [&](u32 plane) { return " +
              (planes_of(i) == 1
                   ? first
                   : "plane == 0 ? " + first + " : " + places_.natural(i, 1, "at.column")) +
              "; });");
  }

  // A value packed for a store to `type`: an as_stored value to the same type is packed already.
  std::string bits_to_store(int operand, int plane, DType type) {
    int i = representative(operand);
    int p = plane;
    while (program::merges_pairs(step(i)) || program::splits_pairs(step(i))) {
      const bool merges = program::merges_pairs(step(i));
      const int next = merges ? p : 0;
      p = merges ? 0 : step(i).which();
      i = representative(step(i).operands[next]);
    }
    if (program::is_rounding(step(i)) && step(i).dtype() == type) return packed_value(i, p);
    return "pack<" + element_text(type) + ">(" + tile_value(operand, plane) + ")";
  }

  // Of values that are rounded anyway the bits are kept too: two are compared at a time. But where
  // columns are asked for one by one, and in fp16, whose values are converted, registers run out.
  std::string kept_type(int i) const {
    const bool keeps_bits = program::is_rounding(step(i)) && step(i).dtype() == DType::bf16 &&
                            !analysis_.ragged_columns;
    return keeps_bits ? "StoredPair<Element::bf16>" : "Elements<2>";
  }

  // All planes of a value, kept until the sub-tile's end, by whoever needs them there.
  const std::string& kept_values(int i) {
    i = representative(i);
    std::string& name = kept_values_[i];
    if (!name.empty()) return name;
    const std::string made = names_.make(value_name(i) + "_values");
    sub_fields_.line(kept_type(i) + " " + made + "[" + std::to_string(planes_of(i)) +
                     "][kFragments][kPairs];");
    name = "sub." + made;
    for (int p = 0; p < planes_of(i); ++p) {
      const std::string value = tile_value(i, p);
      pass_.body.line(name + "[" + std::to_string(p) + "][kFragment][pair] = " + value + ";");
      turns_.end_with(value);
    }
    return name;
  }

  void select(int i) {
    const Step& s = step(i);
    const Step& selection = step(s.operands[0]);
    const int source = selection.operands[0];
    const std::string columns =
        arguments_.number(own("selected_columns"), sizes_.size(step(source).shape.cols));
    end_.line("store_selected<" + element_text(tensor(s.tensor()).dtype) + ">(" +
              arguments_.pointer(s.tensor()) + ", " + stride(s.tensor()) + ", " +
              rows_.index(step(selection.operands[1]).tensor()) + "[kBlock], " + columns + ", " +
              kept_values(source) + ", at, [&](u32 column) { return " +
              places_.plane_column(source) + "; });");
  }

  // A sum that only its reduction reads is added term by term: fewer values live at one time.
  using Terms = std::vector<std::string>;
  Terms terms(int i, int plane) {
    const Step& s = step(i);
    const bool splits = program::applies(s, Elementwise::add) && uses(i) == 1 &&
                        map_.on_tile[s.operands[0]] && map_.on_tile[s.operands[1]];
    if (!splits) return {tile_value(i, plane)};
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
    const std::string valid = analysis_.ragged_columns ? "inside_pair(column, at.columns)" : "2";
    sub_fields_.line("Reduced<" + reduction_text(s.partial()) + "> " + name + "[2];");
    for (int plane = 0; plane < planes_of(s.operands[0]); ++plane) {
      const bool is_sum = s.partial() == PartialKind::sum;
      for (const std::string& term :
           is_sum ? terms(s.operands[0], plane) : Terms{tile_value(s.operands[0], plane)}) {
        pass_.body.line("add_to_row(sub." + name + "[pair % 2], " + term + ", " + valid + ");");
        turns_.end_with(term);
      }
    }
    end_.line("store_row_partial(" + arguments_.pointer(s.tensor()) + ", " + stride(s.tensor()) +
              ", sub." + name + ", at);");
  }

  // Of values that are read twice: when all are made.
  void row_reduction(int i) {
    const Step& s = step(i);
    end_.line("store_row_reduction<" + reduction_text(s.partial()) + ">(" +
              arguments_.pointer(s.tensor()) + ", " + stride(s.tensor()) + ", " +
              kept_values(s.operands[0]) + ", at, " +
              (analysis_.ragged_columns ? "at.columns" : "~0u") + ");");
  }

  void column_partial(int i) {
    const Step& s = step(i);
    const int source = s.operands[0];
    for (int plane = 0; plane < planes_of(source); ++plane) {
      const std::string value = tile_value(source, plane);
      const std::string name = names_.make(tensor(step(i).tensor()).name);
      const std::string all = names_.make(name + "_values");
      sub_fields_.line("ColumnReduction<" + reduction_text(s.partial()) + "> " + name + ";");
      pass_.before.line("Elements<2> " + all + "[kPairs];");
      pass_.body.line(all + "[pair] = " + value + ";");
      turns_.end_with(value);
      pass_.after.line("sub." + name + ".template add<kFragment>(" + all + ", at);");
      const std::string place =
          "scratch + " + std::to_string(column_fields_++) + " * kColumnScratchBytes";
      staged_.line("sub." + name + ".stage(" + place + ", at);");
      end_.line("store_column_partial<" + reduction_text(s.partial()) + ">(" +
                arguments_.pointer(s.tensor()) + ", " + stride(s.tensor()) + ", " + place +
                ", at, [&](u32 column) { return " + places_.natural(source, plane, "column") +
                "; });");
    }
  }

  // ---- The struct's parts.

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

  // The accumulators and planes of a fragment, as parameters.
  std::string fragment_parameters() const {
    return "const float (&accumulators)[" + std::to_string(shape_.parts) +
           "][8],\n                             const u32 (&loaded)[" +
           std::to_string(std::max(1u, shape_.loads)) + "][4],\n                             ";
  }

  std::string walks_text() const {
    if (groups_.empty()) return "";
    std::string lines;
    for (size_t walk = 0; walk < walks_.size(); ++walk) {
      lines += "    if constexpr (kWalk == " + std::to_string(static_cast<int64_t>(walk)) +
               ") {\n" + fragment_lines(walks_[walk], "", "") + "    }\n";
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
        turns_.fragment_line() + fragment_lines(pass_, direct_loads_.ahead(), turns_.last_line());
    return function("void",
                    "fragment(const Arguments& a, const Rows& rows, SubTile& sub,\n"
                    "                             " +
                        fragment_parameters() + "u32 (&stored)[" +
                        std::to_string(std::max(1u, shape_.stores)) +
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
  bool takes_turns_;  // and no load has been made to wait yet
  const bool keeps_tables_;
  const std::string name_;
  LaunchArguments& arguments_;
  SpaceOperands operands_;
  SpacePlaces places_;
  DirectLoads direct_loads_;
  KeptLoads kept_loads_;

  ValueNames names_;
  RowValues rows_;
  GroupText groups_;

  std::set<std::pair<int, int>> needed_;    // step, plane
  std::map<int, std::string> kept_values_;  // step
  Pass pass_;                               // the one that is being written
  std::vector<Pass> walks_;                 // of sums
  uint32_t column_fields_ = 0;

  Body sub_fields_{4};
  Body sub_lines_{4};
  Body staged_{4};  // column partials into scratch memory, before the warps meet
  Body end_{4};
};

}  // namespace

std::string space_text(const ProgramSizes& sizes, const program::TileMap& map,
                       const SpaceAnalysis& analysis, const device::GemmConfig& config,
                       bool keeps_tables, const std::string& name, LaunchArguments& arguments) {
  return SpaceWriter(sizes, map, analysis, config, keeps_tables, name, arguments).run();
}

}  // namespace coda::hopper
