// SPDX-License-Identifier: Apache-2.0
// A thread holds eight base columns of a few rows. Loads of all its rows come first, so that many
// are in flight; then row by row the steps in program order, one line each, a value being one plane
// of eight elements, or two (the members of its pairs). Values that are no tiles: tile_vectors.h.
#include "hopper/codegen/tile_space_text.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "coda/error.h"
#include "device/tiles/tile_position.cuh"
#include "hopper/codegen/expressions.h"
#include "hopper/codegen/tile_vectors.h"
#include "program/problem.h"
#include "program/vocabulary.h"

namespace coda::hopper {
namespace {

using program::TileMap;

class TileSpaceWriter {
 public:
  TileSpaceWriter(const Program& program, const TileMap& map, int space, const DimValues& sizes,
                  ArgumentText& arguments)
      : program_(program),
        map_(map),
        space_(map.spaces[space]),
        id_(std::to_string(space)),
        sizes_(sizes),
        arguments_(arguments),
        reduces_columns_(
            std::any_of(space_.steps.begin(), space_.steps.end(),
                        [&](int i) { return program::is_column_partial(program.steps[i]); })),
        columns_(arguments, id_, reduces_columns_),
        vectors_(program, arguments, columns_, text_) {}

  TileSpaceText run() {
    find_stored();
    auto layouts = layouts_of_warp(program_, map_, space_, sizes_);
    if (const auto* refusal = std::get_if<Refusal>(&layouts))
      throw Error(coda::hopper::text(*refusal, ProgramSizes(program_, sizes_, {})));
    layouts_ = std::get<TileLayouts>(std::move(layouts));
    find_needed();
    choose_rows();
    row_count_ = arguments_.number("rows_" + id_, size(space_.shape.rows));
    column_count_ = arguments_.number("columns_" + id_, size(space_.shape.cols));
    columns_.align("columns * 2");
    // Columns of pairs are twice as many, and are divided as numbers below 2^31.
    require(size(space_.shape.cols) < int64_t{1} << 30,
            describe(space_.steps.front()) + " has too many columns for one launch");
    std::string spans;
    if (!reduces_columns_) {
      const int64_t count = partial_spans(size(space_.shape.cols));
      spans = columns_.divisor(arguments_.number("spans_" + id_, count), count);
    }
    position_ = reduces_columns_
                    ? "block_position(block, thread_index(), columns)"
                    : "span_position(block, thread_index(), columns, " + spans + ", kThreadRows)";
    for (int i : space_.steps) write(i);
    TileSpaceText result;
    result.name = "Space" + id_;
    result.reduces_columns = reduces_columns_;
    result.text = assemble(result.name);
    const int64_t rows = size(space_.shape.rows);
    const int64_t columns = size(space_.shape.cols);
    const uint64_t blocks = reduces_columns_ ? device::column_blocks(rows, columns)
                                             : device::span_blocks(rows, columns, thread_rows_);
    require(blocks < uint64_t{1} << 26,  // spans are counted in 32 bits
            describe(space_.steps.front()) +
                " has too many tiles for one launch; run it on fewer "
                "rows at a time");
    result.blocks = static_cast<int64_t>(blocks);
    return result;
  }

 private:
  const Step& step(int i) const { return program_.steps[i]; }
  const TensorDecl& tensor(int i) const { return program_.tensors[i]; }
  int64_t size(const Dim& dim) const { return dim.evaluate(sizes_); }
  std::string describe(int i) const {
    return "program '" + program_.name + "', step " + std::to_string(i) + ", " +
           program::describe_step(program_, i) + ":";
  }
  static std::string name(char letter, int i, const std::string& suffix = "") {
    return letter + std::to_string(i) + suffix;
  }
  static std::string plane_suffix(int planes, int w) {
    return planes == 1 ? "" : "_" + std::to_string(w);
  }

  void find_stored() {
    for (const Step& s : program_.steps) {
      if (program::is_effect(s)) stored_.push_back(s.tensor());
    }
  }
  bool is_stored(int t) const {
    return std::find(stored_.begin(), stored_.end(), t) != stored_.end();
  }

  const TileLayout& layout(int i) const { return layouts_.at(i); }

  // ---- Which planes are used: a member that nothing reads is not loaded.

  void need(int i, unsigned planes) { needed_[i] |= planes; }
  void find_needed() {
    constexpr unsigned kAll = 3;
    for (auto at = space_.steps.rbegin(); at != space_.steps.rend(); ++at) {
      const Step& s = step(*at);
      if (program::is_effect(s)) needed_[*at] = kAll;
      const unsigned own = needed_[*at];
      for (size_t o = 0; o < s.operands.size(); ++o) {
        unsigned planes = own;
        if (program::splits_pairs(s)) planes = own != 0 ? 1U << s.which() : 0;
        if (program::merges_pairs(s)) planes = (own >> o & 1) != 0 ? kAll : 0;
        if (program::sums_groups(s) || program::repeats_groups(s) || program::is_selection(s)) {
          planes = own != 0 ? kAll : 0;
        }
        if (own != 0 && map_.on_tile[s.operands[o]] && layouts_.contains(s.operands[o]) &&
            layout(s.operands[o]).planes() == 1) {
          planes = planes != 0 ? kAll : 0;
        }
        need(s.operands[o], planes);
      }
    }
  }
  bool is_needed(int i, int w) const { return (needed_.at(i) >> w & 1) != 0; }

  // Rows that a thread has in flight. Few rows mean few registers, so that more blocks share a
  // multiprocessor and some compute while others load: that was worth more than loads in flight
  // within a thread (lab/notebook/hopper.md). Where columns are reduced a warp walks down its rows,
  // and about eight 16-byte loads of a thread are in flight. What only reduces rows has little to
  // do for each but more for all.
  void choose_rows() {
    int pieces = 0;  // 16-byte loads of a row
    bool is_wide = false;
    bool stores_tiles = false;
    for (int i : space_.steps) {
      const Step& s = step(i);
      stores_tiles = stores_tiles || program::is_tile_store(s);
      if (!program::is_tile_load(s)) continue;
      const int bytes = static_cast<int>(size_of(tensor(s.tensor()).dtype));
      is_wide = is_wide || bytes > 2;
      for (int w = 0; w < layout(i).planes(); ++w) {
        if (is_needed(i, w)) pieces += bytes / 2;
      }
    }
    if (reduces_columns_) {
      thread_rows_ = pieces <= 2 ? 4 : pieces <= 4 ? 2 : 1;
    } else {
      thread_rows_ = is_wide || pieces > 4 ? 1 : stores_tiles || pieces > 2 ? 2 : 4;
    }
  }

  // The planes of operand o as a value of `layout`.
  Planes operand(int o, const TileLayout& layout) {
    Planes planes = map_.on_tile[o] ? values_.at(o) : vectors_.value(o, layout);
    if (planes.size() == 1 && layout.planes() == 2) planes.push_back(planes[0]);
    return planes;
  }

  // ---- Steps.

  void write(int i) {
    const Step& s = step(i);
    if (!map_.on_tile[i] && !program::is_effect(s)) return;  // written where it is used
    switch (s.kind()) {
      case StepKind::load_tile: return load_tile(i);
      case StepKind::elementwise:
      case StepKind::as_stored: return elementwise(i);
      case StepKind::split_pair: values_[i] = {values_.at(s.operands[0])[s.which()]}; return;
      case StepKind::merge_pairs:
        values_[i] = {values_.at(s.operands[0])[0], values_.at(s.operands[1])[0]};
        return;
      case StepKind::reduce_group: return reduce_group(i);
      case StepKind::repeat_group: values_[i] = operand(s.operands[0], layout(i)); return;
      case StepKind::select_column: return;  // written where it is stored
      case StepKind::store_tile: return store_tile(i);
      case StepKind::store_vector: return store_selected(i);
      case StepKind::row_partial: return row_partial(i);
      case StepKind::column_partial: return column_partial(i);
      default:
        throw InternalError("step " + std::to_string(i) + " of program '" + program_.name +
                            "' has no place in a tile space without a product");
    }
  }

  void load_tile(int i) {
    const Step& s = step(i);
    const TileLayout lies = layout(i);
    std::string row = reduces_columns_ ? "inside" : "row";
    if (s.row_index() >= 0) {
      row = "table_row(" + vectors_.index_of_row(s.row_index()) + ", " +
            arguments_.stored_rows(s.tensor()) + ")";
    }
    const bool is_table = s.row_index() >= 0 || s.repeat() > 1;
    // A thread reads four bytes an element, or adjacent pairs, in two halves of a sector: the
    // second finds it in L1.
    const bool is_halved = size_of(tensor(s.tensor()).dtype) > 2 || lies.is_adjacent();
    const std::string access = is_stored(s.tensor())   ? "in_place"
                               : is_table || is_halved ? "cached"
                                                       : "streamed";
    if (lies.kind != TileLayout::grouped) columns_.align_tensor(s.tensor(), true);
    if (lies.is_adjacent()) return load_pairs(i, row, access);
    Planes planes;
    for (int w = 0; w < lies.planes(); ++w) {
      const std::string suffix = plane_suffix(lies.planes(), w);
      planes.push_back(name('v', i, suffix));
      if (!is_needed(i, w)) continue;
      std::string columns = columns_.of(lies, w);
      if (s.repeat() > 1) {
        if (lies.is_vector()) columns_.align(arguments_.stored_columns(s.tensor()) + " * 2");
        columns = columns_.in_table("table" + std::to_string(i) + suffix, columns, s.tensor(),
                                    lies.is_vector() ? 1 : 0);
      }
      const std::string raw = name('t', i, suffix);
      text_.row_arrays += "      typename LoadedEight<" + ColumnText::is_vector(lies) + ", " +
                          arguments_.stored_type(s.tensor()) + ">::Type " + raw +
                          "[kThreadRows];\n";
      std::string& loads = s.row_index() >= 0 ? text_.gathers : text_.loads;
      loads += "        " + raw + "[r] = load_eight<" + arguments_.stored_type(s.tensor()) +
               ", Access::" + access + ", " + ColumnText::is_vector(lies) + ">(" +
               arguments_.pointer(s.tensor()) + ", " + arguments_.row_start(row, s.tensor()) +
               ", " + columns_.loaded("valid[r]") + ", " + columns + ");" +
               arguments_.comment(s.tensor());
      text_.body += "        const auto " + planes.back() + " = values(" + raw + "[r]);" +
                    arguments_.comment(s.tensor());
    }
    values_[i] = planes;
  }

  // Both members of adjacent pairs, as they lie in memory.
  void load_pairs(int i, const std::string& row, const std::string& access) {
    const Step& s = step(i);
    values_[i] = {name('v', i, "_0"), name('v', i, "_1")};
    if (!is_needed(i, 0) && !is_needed(i, 1)) return;
    std::string columns = columns_.of(layout(i), 0);
    if (s.repeat() > 1) {
      columns_.align(arguments_.stored_columns(s.tensor()));
      columns = columns_.in_table("table" + std::to_string(i), columns, s.tensor(), 2);
    }
    const std::string raw = name('t', i);
    text_.row_arrays += "      typename LoadedPairs<kVector, " +
                        arguments_.stored_type(s.tensor()) + ">::Type " + raw + "[kThreadRows];\n";
    std::string& loads = s.row_index() >= 0 ? text_.gathers : text_.loads;
    loads += "        " + raw + "[r] = load_pairs<" + arguments_.stored_type(s.tensor()) +
             ", Access::" + access + ", kVector>(" + arguments_.pointer(s.tensor()) + ", " +
             arguments_.row_start(row, s.tensor()) + ", " + columns_.loaded("valid[r]") + ", " +
             columns + ");" + arguments_.comment(s.tensor());
    for (int w = 0; w < 2; ++w) {
      if (!is_needed(i, w)) continue;
      text_.body += "        const auto " + values_[i][w] + " = members<" + std::to_string(w) +
                    ">(" + raw + "[r]);" + arguments_.comment(s.tensor());
    }
  }

  void elementwise(int i) {
    const Step& s = step(i);
    const TileLayout lies = layout(i);
    std::vector<Planes> operands;
    for (int o : s.operands) operands.push_back(operand(o, lies));
    Planes planes;
    for (int w = 0; w < lies.planes(); ++w) {
      planes.push_back(name('v', i, plane_suffix(lies.planes(), w)));
      if (!is_needed(i, w)) continue;
      std::vector<std::string> texts;
      for (const Planes& o : operands) texts.push_back(o.size() == 1 ? o[0] : o[w]);
      text_.body += "        const auto " + planes.back() + " = " + expression(s, texts) + ";\n";
    }
    values_[i] = planes;
  }

  void reduce_group(int i) {
    const TileLayout lies = layout(i);
    const Planes from = values_.at(step(i).operands[0]);
    const std::string call = " = group_sum<" + std::to_string(lies.base_group()) + ">(";
    Planes planes;
    for (int w = 0; w < lies.planes(); ++w) {
      planes.push_back(name('v', i, plane_suffix(lies.planes(), w)));
      text_.body += "        const auto " + planes.back() + call +
                    (lies.is_split ? from[w] : join(from)) + ");\n";
    }
    values_[i] = planes;
  }

  static std::string join(const Planes& planes) {
    return planes.size() == 1 ? planes[0] : planes[0] + ", " + planes[1];
  }

  // A value that is rounded and then stored in the same type need not be rounded twice.
  int unrounded(int i, DType stored) const {
    const Step& s = step(i);
    return program::is_rounding(s) && s.dtype() == stored ? s.operands[0] : i;
  }

  void store_tile(int i) {
    const Step& s = step(i);
    const TileLayout lies = layout(s.operands[0]);
    const Planes planes = operand(unrounded(s.operands[0], tensor(s.tensor()).dtype), lies);
    const std::string where = arguments_.pointer(s.tensor()) + ", " +
                              arguments_.row_start("row", s.tensor()) + ", valid[r], ";
    if (lies.kind != TileLayout::grouped) columns_.align_tensor(s.tensor(), true);
    if (lies.is_adjacent()) {
      text_.body += "        store_pairs<" + arguments_.stored_type(s.tensor()) + ", kVector>(" +
                    where + columns_.of(lies, 0) + ", " + join(planes) + ");" +
                    arguments_.comment(s.tensor());
      return;
    }
    for (int w = 0; w < lies.planes(); ++w) {
      if (lies.kind == TileLayout::grouped) {
        // The columns before they are divided.
        const TileLayout natural{
            .kind = lies.pairing == Dim(0) ? TileLayout::narrow : TileLayout::wide,
            .pairing = lies.pairing};
        text_.body += "        store_groups<" + arguments_.stored_type(s.tensor()) + ">(" + where +
                      std::to_string(lies.group) + ", " + columns_.of(natural, w) + ", " +
                      planes[w] + ");" + arguments_.comment(s.tensor());
      } else {
        text_.body += "        store_eight<" + arguments_.stored_type(s.tensor()) + ", kVector>(" +
                      where + columns_.of(lies, w) + ", " + planes[w] + ");" +
                      arguments_.comment(s.tensor());
      }
    }
  }

  void store_selected(int i) {
    const Step& s = step(i);
    const Step& selected = step(s.operands[0]);
    const int from = selected.operands[0];
    const TileLayout lies = layout(from);
    const Planes planes = operand(from, lies);
    const std::string index = vectors_.index_of_row(step(selected.operands[1]).tensor());
    for (int w = 0; w < lies.planes(); ++w) {
      text_.body += "        store_selected<" + arguments_.stored_type(s.tensor()) + ", " +
                    (lies.is_adjacent() ? "false" : "kVector") + ">(" +
                    arguments_.pointer(s.tensor()) + ", " +
                    arguments_.row_start("row", s.tensor()) + ", valid[r], " + index +
                    ", columns * " + std::to_string(lies.planes()) + ", " + columns_.of(lies, w) +
                    ", " + planes[w] + ");" + arguments_.comment(s.tensor());
    }
  }

  void row_partial(int i) {
    const Step& s = step(i);
    const std::string kind = reduction_text(s.partial());
    const std::string partials = name('p', i);
    text_.row_arrays += "      RowPartial<" + kind + "> " + partials + "[kThreadRows];\n";
    text_.body +=
        "        " + partials + "[r] = row_partial<" + kind + ", kVector>(columns, at, valid[r], " +
        join(operand(s.operands[0], layout(s.operands[0]))) + ");" + arguments_.comment(s.tensor());
    text_.after_rows += "      store_row_partials(" + arguments_.pointer(s.tensor()) + ", " +
                        arguments_.stride(s.tensor()) + ", rows, at.row + first, columns, at, " +
                        partials + ");" + arguments_.comment(s.tensor());
  }

  void column_partial(int i) {
    const Step& s = step(i);
    const TileLayout lies = layout(s.operands[0]);
    const Planes planes = operand(s.operands[0], lies);
    for (int w = 0; w < lies.planes(); ++w) {
      const std::string reduced = name('s', i, plane_suffix(lies.planes(), w));
      text_.before += "    ReducedColumns<" + reduction_text(s.partial()) + "> " + reduced + ";\n";
      text_.body += "        add_row<kVector>(" + reduced + ", " + planes[w] + ", valid[r]);\n";
      const std::string natural =
          lies.kind == TileLayout::narrow
              ? "j"
              : "pair_column(j, " + columns_.half(lies.pairing) + ", " + std::to_string(w) + ")";
      text_.after +=
          "    store_column_partial(scratch, " + reduced + ", " + arguments_.pointer(s.tensor()) +
          ", " + arguments_.stride(s.tensor()) +
          ", at.row / kPartialSpan, ceil_div(rows, kPartialSpan), columns, at, [&](u32 j) { "
          "return " +
          natural + "; });" + arguments_.comment(s.tensor());
    }
  }

  std::string assemble(const std::string& struct_name) const {
    std::string all_aligned;
    for (const std::string& bytes : columns_.aligned()) {
      all_aligned += all_aligned.empty() ? "" : " |\n            ";
      all_aligned += bytes == "columns * 2" ? column_count_ + " * 2" : bytes;
    }
    const std::string rows_loop =
        "#pragma unroll\n      for (u32 r = 0; r < kThreadRows; ++r) {\n        " +
        std::string(reduces_columns_ ? "[[maybe_unused]] " : "") +
        "const u32 row = at.row + first + r;\n";
    const std::string inside = "        const u32 inside = smaller(row, rows - 1);\n";
    std::string text =
        "// Tile space " + id_ + ", [" + space_.shape.rows.text() + ", " +
        space_.shape.cols.text() + "].\nstruct " + struct_name +
        " {\n  static constexpr u32 kThreadRows = " + std::to_string(thread_rows_) +
        ";\n\n  __device__ static bool is_vector(const Arguments& a) {\n    return (" +
        all_aligned +
        ") %\n               16 ==\n           0;\n  }\n\n  template <bool kVector>\n"
        "  __device__ __forceinline__ static void run(const Arguments& a, u32 block, "
        "[[maybe_unused]] float* scratch) {\n    const u32 rows = " +
        row_count_ + ";\n    const u32 columns = " + column_count_ + ";\n" + columns_.divisors() +
        "    const TilePosition at = " + position_ +
        ";\n    const auto base = [&](u32 i) { return " +
        (reduces_columns_ ? "loaded_column<kVector>(at.column, columns)" : "at.column") +
        " + i; };\n" + columns_.functions() + text_.before;
    text += "#pragma unroll 1\n    for (u32 first = 0; first < " +
            std::string(reduces_columns_ ? "kWarpRows" : "kThreadRows") +
            "; first += kThreadRows) {\n      u32 valid[kThreadRows];\n" + text_.row_arrays +
            rows_loop + "        valid[r] = row < rows ? at.valid : 0;\n" +
            (text_.first_loads.empty() ? "" : inside) + text_.first_loads + "      }\n";
    if (!text_.loads.empty() || !text_.gathers.empty()) {
      text += rows_loop + (reduces_columns_ && !text_.loads.empty() ? inside : "") + text_.loads +
              text_.gathers + "      }\n";
    }
    text += rows_loop + text_.body + "      }\n" + text_.after_rows + "    }\n" + text_.after +
            "  }\n};\n";
    return text;
  }

  const Program& program_;
  const TileMap& map_;
  const TileSpace& space_;
  const std::string id_;
  const DimValues& sizes_;
  ArgumentText& arguments_;

  const bool reduces_columns_;
  int thread_rows_ = 1;
  std::vector<int> stored_;  // tensors that the program writes
  std::map<int, TileLayout> layouts_;
  std::map<int, unsigned> needed_;  // of each step: planes, as bits
  std::map<int, Planes> values_;    // of tiles
  std::string row_count_;
  std::string column_count_;
  std::string position_;  // the thread's
  TileRunText text_;
  ColumnText columns_;
  TileVectors vectors_;
};

}  // namespace

TileSpaceText tile_space_text(const Program& program, const TileMap& map, int space,
                              const DimValues& sizes, ArgumentText& arguments) {
  return TileSpaceWriter(program, map, space, sizes, arguments).run();
}

}  // namespace coda::hopper
