// SPDX-License-Identifier: Apache-2.0
// A thread holds eight base columns of a few rows. It first loads all its rows, so that many loads
// are in flight. Then, row by row, it runs the steps in program order, with one line per plane of
// eight elements (two planes for wide values). Values that are equal for all rows are loaded before
// the rows; what other loads of a row need, such as an index, before its tiles. The spaces of a
// launch use disjoint ranges of blocks.
#include "gpu/codegen/tile_emitter.h"

#include <algorithm>
#include <set>
#include <vector>

#include "coda/error.h"
#include "device/tiles/tile_position.cuh"
#include "gpu/codegen/column_text.h"
#include "gpu/codegen/expressions.h"
#include "gpu/codegen/function_text.h"
#include "gpu/codegen/kernel_text.h"
#include "gpu/codegen/padded_columns.h"
#include "gpu/codegen/tile_rows.h"
#include "gpu/codegen/value_text.h"
#include "program/problem.h"
#include "program/vocabulary.h"

namespace coda::gpu {
namespace {

using program::TileMap;

// A struct with the interface of device/kernels/tile_kernel.cuh.
struct SpaceText {
  std::string name;
  std::string text;
  int64_t blocks = 0;  // number of blocks of kTileThreads threads
  bool by_blocks = false;
  bool leaves_bytes = false;
  int maxima = 0;
  int turned_planes = 0;  // planes of bytes that are stored by columns
};

// Effects that need all 64 rows of a block.
bool meets_other_warps(const Step& step) {
  return program::is_column_partial(step) || program::is_transposed_store(step) ||
         program::is_maximum(step);
}

class TileSpaceWriter {
 public:
  TileSpaceWriter(const ProgramSizes& sizes, const TileMap& map, int space,
                  const TileLayouts& layouts, LaunchArguments& arguments)
      : sizes_(sizes),
        map_(map),
        number_(space),
        space_(map.spaces[space]),
        layouts_(layouts),
        id_(std::to_string(space)),
        arguments_(arguments),
        by_blocks_(std::any_of(space_.steps.begin(), space_.steps.end(),
                               [&](int i) { return meets_other_warps(sizes.step(i)); })),
        columns_(arguments, id_, by_blocks_),
        values_(values_of_rows()) {}

  SpaceText run() {
    find_needed();
    choose_rows();
    const int64_t rows = sizes_.size(space_.shape.rows);
    const int64_t columns = columns_with_padding(sizes_, space_);
    row_count_ = arguments_.number("rows_" + id_, rows);
    column_count_ = arguments_.number("columns_" + id_, columns);
    // Wide tensors have twice as many columns, and divisions support numbers below 2^31.
    require(columns < int64_t{1} << 30, description() + " has too many columns for one launch");
    position_ = "block_position(block, thread_index(), columns)";
    is_whole_ = "is_block_whole(block, columns)";
    if (!by_blocks_) {
      const std::string spans = arguments_.number("spans_" + id_, partial_spans(columns));
      position_ = filled("span_position(block, thread_index(), columns, $, kThreadRows)",
                         {columns_.divisor(spans, partial_spans(columns))});
      is_whole_ = filled("are_spans_whole(block, columns, $)", {spans});
    }
    values_.write(space_.steps, needed_, [this](int i) { write_effect(i); });
    const uint64_t blocks = by_blocks_ ? device::column_blocks(rows, columns)
                                       : device::span_blocks(rows, columns, rows_.in_flight);
    require(blocks < uint64_t{1} << 26,  // spans are counted in 32 bits
            description() + " has too many tiles for one launch; run it on fewer rows at a time");
    const std::string name = "Space" + id_;
    return {name,    assemble(name), static_cast<int64_t>(blocks), by_blocks_, rows_.leaves_bytes,
            maxima_, turned_planes_};
  }

 private:
  using At = ValueText::At;
  const Step& step(int i) const { return sizes_.step(i); }
  const TensorDecl& tensor(int i) const { return sizes_.tensor(i); }
  const TileLayout& layout(int i) const { return layouts_.at(i); }
  std::string description() const {
    const int i = space_.steps.front();
    return "program '" + sizes_.given().name + "', step " + std::to_string(i) + ", " +
           program::describe_step(sizes_.given(), i) + ":";
  }
  // Tensors that the program also stores are read at the time of use.
  bool is_stored(int t) const {
    const std::vector<Step>& steps = sizes_.program().steps;
    return std::any_of(steps.begin(), steps.end(),
                       [&](const Step& s) { return program::is_effect(s) && s.tensor() == t; });
  }

  // Finds needed values, so that unused members of pairs are not loaded: a trial run writes values
  // on demand.
  void find_needed() {
    LaunchArguments unused(sizes_);
    TileSpaceWriter trial(sizes_, map_, number_, layouts_, unused);
    for (int i : space_.steps) trial.write_effect(i);
    needed_ = trial.values_.made();
  }

  void choose_rows() {
    int pieces = 0;  // 16-byte loads per row
    for (int i : space_.steps) {
      if (!program::is_tile_load(step(i))) continue;
      for (int w = 0; w < layout(i).planes(); ++w) {
        if (needed_.contains({i, place({i, i, w})}))
          pieces += static_cast<int>(size_of(tensor(step(i).tensor()).dtype)) / 2;
      }
    }
    rows_ = choose_tile_rows(sizes_.program(), space_.steps, pieces);
  }

  // With 8-bit copies, the slow path for partial vectors handles one row at a time: it is rare, and
  // must not cost the main path registers.
  std::string rows_in_flight() const { return rows_.leaves_bytes ? "kRows" : "kThreadRows"; }

  // ---- Values.

  // Values inside the loop over rows.
  ValueText values_of_rows() {
    return {sizes_,
            &map_,
            nullptr,
            {.place = [this](const At& at) { return place(at); },
             .source = [this](const At& at) { return source(at); },
             .name = [this](const At& at) { return name(at); },
             .write = [this](const At& at, const std::string& name,
                             const std::string& text) { write(at.step, name, text); }}};
  }
  // Whether this is the first request from outside the loop.
  bool is_first(const std::string& name) { return raws_.insert(name).second; }

  std::string value(int i, int plane) { return values_.value({i, i, plane}); }
  std::string planes(int i) {
    std::string text = value(i, 0);
    return layout(i).planes() == 1 ? text : text + ", " + value(i, 1);
  }
  std::string place(const At& at) {
    if (map_.on_tile[at.step]) return std::to_string(at.plane);
    return step(at.step).shape.is_per_column() ? columns_.of(layout(at.reader), at.plane) : "";
  }

  static std::string suffix(const TileLayout& layout, int plane) {
    return layout.planes() == 1 ? "" : "_" + std::to_string(plane);
  }
  // Column vectors with different layouts have different names.
  std::string name(const At& at) {
    std::string own = "v" + std::to_string(at.step);
    if (map_.on_tile[at.step]) return own + suffix(layout(at.step), at.plane);
    if (!step(at.step).shape.is_per_column()) return own;
    const TileLayout& lies = layout(at.reader);
    return own + (lies == TileLayout{} ? "" : "_" + columns_.of(lies, 0)) + suffix(lies, at.plane);
  }

  void write(int i, const std::string& name, const std::string& text,
             const std::string& comment = "") {
    const bool is_float = !map_.on_tile[i] && !step(i).shape.is_per_column();
    if (step(i).shape.is_scalar() && !is_first(name)) return;
    (step(i).shape.is_scalar() ? before_ : body_)
        .line("const $ $ = $;$", {is_float ? "float" : "auto", name, text, comment});
  }

  std::optional<std::string> source(const At& at) {
    const Step& s = step(at.step);
    const int t = s.tensor();
    std::string text;
    std::string comment;
    switch (s.kind()) {
      case StepKind::load_tile: return load_tile(at);
      case StepKind::repeat_group: {
        const int o = s.operands[0];
        const bool is_tile = map_.on_tile[o];
        return values_.value(
            {o, is_tile ? o : at.step, is_tile && layout(o).planes() == 1 ? 0 : at.plane});
      }
      case StepKind::group_abs_max:
      case StepKind::reduce_group: {
        const TileLayout& lies = layout(at.step);
        const int o = s.operands[0];
        text =
            filled("$<$>($)", {program::takes_largest_of_groups(s) ? "group_abs_max" : "group_sum",
                               std::to_string(lies.base_group()),
                               lies.is_split ? value(o, at.plane) : planes(o)});
        break;
      }
      case StepKind::load_scalar:
        text = filled("load_element<$>($, 0)", {arguments_.stored_type(t), arguments_.pointer(t)});
        comment = arguments_.comment(t);
        break;
      case StepKind::load_per_row: {
        const std::string rows = "r" + std::to_string(at.step);
        if (is_first(rows)) {
          row_arrays_.line("float $[$];", {rows, rows_in_flight()});
          first_loads_.line(
              "$[r] = load_of_row<$>($);$",
              {rows, arguments_.stored_type(t), element_of_row(t), arguments_.comment(t)});
        }
        text = rows + "[r]";
        break;
      }
      case StepKind::load_per_column: {
        const TileLayout& lies = layout(at.reader);
        const std::string raw = "c" + name(at).substr(1);
        text = filled("values($)", {raw});
        if (!is_first(raw)) break;
        std::string columns = columns_.of(lies, at.plane);
        if (!s.repeat().is(1)) {
          if (lies.is_vector()) columns_.align(arguments_.stored_columns(t) + " * 2");
          columns =
              columns_.in_table("table" + raw.substr(1), columns, t, lies.is_vector() ? 1 : 0);
        }
        before_.line(
            "const auto $ = load_eight<$, Access::cached, $>($, 0, $, $);$",
            {raw, arguments_.stored_type(t), ColumnText::is_vector(lies), arguments_.pointer(t),
             columns_.loaded("at.valid"), columns, arguments_.comment(t)});
        if (lies.is_vector()) columns_.align_tensor(t, false);
        break;
      }
      case StepKind::column_index: {
        const TileLayout& lies = layout(at.reader);
        text = filled("column_indices<$>($)",
                      {ColumnText::is_vector(lies), columns_.of(lies, at.plane)});
        break;
      }
      default: return std::nullopt;
    }
    std::string made = name(at);
    write(at.step, made, text, comment);
    return made;
  }

  // Both members of adjacent pairs are loaded with one access.
  std::string load_tile(const At& at) {
    const int i = at.step;
    const Step& s = step(i);
    const int t = s.tensor();
    const TileLayout& lies = layout(i);
    const bool is_adjacent = lies.is_adjacent();
    const std::string raw = "t" + std::to_string(i) + (is_adjacent ? "" : suffix(lies, at.plane));
    std::string made = name(at);
    if (raws_.insert(raw).second) load_raw(i, raw, is_adjacent ? 0 : at.plane);
    const std::string text = is_adjacent
                                 ? filled("members<$>($[r])", {std::to_string(at.plane), raw})
                                 : filled("values($[r])", {raw});
    write(i, made, text, arguments_.comment(t));
    return made;
  }

  void load_raw(int i, const std::string& raw, int plane) {
    const Step& s = step(i);
    const int t = s.tensor();
    const TileLayout& lies = layout(i);
    const bool is_adjacent = lies.is_adjacent();
    std::string row = by_blocks_ ? "inside" : "row";
    if (s.row_index() >= 0)
      row = filled("table_row($, $)", {index_of_row(s.row_index()), arguments_.stored_rows(t)});
    const bool is_table = s.row_index() >= 0 || !s.repeat().is(1);
    // With four bytes per element, or adjacent pairs, a thread reads its part of a sector in two
    // halves; the second half hits L1.
    const bool is_halved = size_of(tensor(t).dtype) > 2 || is_adjacent;
    const std::string access = is_stored(t)            ? "in_place"
                               : is_table || is_halved ? "cached"
                                                       : "streamed";
    if (lies.kind != TileLayout::grouped) columns_.align_tensor(t, true);
    std::string columns = columns_.of(lies, plane);
    if (!s.repeat().is(1)) {
      if (lies.is_vector() || is_adjacent)
        columns_.align(arguments_.stored_columns(t) + (is_adjacent ? "" : " * 2"));
      columns = columns_.in_table("table" + raw.substr(1), columns, t,
                                  is_adjacent        ? 2
                                  : lies.is_vector() ? 1
                                                     : 0);
    }
    const std::string many = is_adjacent ? "Pairs" : "Eight";
    const std::string vector = is_adjacent ? "kVector" : ColumnText::is_vector(lies);
    const std::string type = arguments_.stored_type(t);
    row_arrays_.line("typename Loaded$<$, $>::Type $[$];",
                     {many, vector, type, raw, rows_in_flight()});
    (s.row_index() >= 0 ? gathers_ : loads_)
        .line("$[r] = load_$<$, Access::$, $>($, $, $, $);$",
              {raw, is_adjacent ? "pairs" : "eight", type, access, vector, arguments_.pointer(t),
               arguments_.row_start(row, t), columns_.loaded("valid[r]"), columns,
               arguments_.comment(t)});
  }

  // Values read for rows outside the space are not used.
  std::string element_of_row(int tensor) {
    return arguments_.pointer(tensor) + ", inside, " + arguments_.row_bytes(tensor);
  }

  // An i32 vector as the index of each row.
  std::string index_of_row(int tensor) {
    const std::string index = "i" + std::to_string(tensor);
    if (raws_.insert(index).second) {
      row_arrays_.line("u32 $[$];", {index, rows_in_flight()});
      first_loads_.line("$[r] = index_of_row($);$",
                        {index, element_of_row(tensor), arguments_.comment(tensor)});
    }
    return index + "[r]";
  }

  // ---- Effects.

  void write_effect(int i) {
    switch (step(i).kind()) {
      case StepKind::store_tile: return store_tile(i);
      case StepKind::store_vector: return store_selected(i);
      case StepKind::row_partial: return row_partial(i);
      case StepKind::column_partial: return column_partial(i);
      case StepKind::store_transposed: return store_transposed(i);
      case StepKind::abs_max_into: return abs_max_into(i);
      default: return;
    }
  }

  // The start of a row of a stored tensor and the number of its valid columns.
  std::string row_of(int t) {
    return filled("$, $, valid[r]", {arguments_.pointer(t), arguments_.row_start("row", t)});
  }

  void store_tile(int i) {
    const int t = step(i).tensor();
    int from = step(i).operands[0];
    const TileLayout& lies = layout(from);
    // A value that is rounded and then stored in the same type is rounded only once.
    if (program::is_rounding(step(from)) && step(from).dtype() == tensor(t).dtype)
      from = step(from).operands[0];
    const auto stored = [&](int w) { return values_.value({from, step(i).operands[0], w}); };
    const std::string type = arguments_.stored_type(t);
    const std::string comment = arguments_.comment(t);
    const std::string row = row_of(t);
    if (lies.kind != TileLayout::grouped) columns_.align_tensor(t, true);
    if (lies.is_adjacent()) {
      const std::string columns = columns_.of(lies, 0);
      body_.line("store_pairs<$, kVector>($, $, $, $);$",
                 {type, row, columns, stored(0), stored(1), comment});
      return;
    }
    // For grouped values: the columns before division by the group size.
    const bool is_wide = !(lies.pairing == Dim(0));
    const TileLayout natural{.kind = is_wide ? TileLayout::wide : TileLayout::narrow,
                             .pairing = lies.pairing};
    for (int w = 0; w < lies.planes(); ++w) {
      if (lies.kind == TileLayout::grouped) {
        body_.line("store_groups<$>($, $, $, $);$", {type, row, std::to_string(lies.group),
                                                     columns_.of(natural, w), stored(w), comment});
      } else {
        body_.line("store_eight<$, kVector>($, $, $);$",
                   {type, row, columns_.of(lies, w), stored(w), comment});
      }
    }
  }

  void store_selected(int i) {
    const int t = step(i).tensor();
    const Step& selected = step(step(i).operands[0]);
    const int from = selected.operands[0];
    const TileLayout& lies = layout(from);
    for (int w = 0; w < lies.planes(); ++w)
      body_.line("store_selected<$, $>($, $, columns * $, $, $);$",
                 {arguments_.stored_type(t), lies.is_adjacent() ? "false" : "kVector", row_of(t),
                  index_of_row(step(selected.operands[1]).tensor()), std::to_string(lies.planes()),
                  columns_.of(lies, w), value(from, w), arguments_.comment(t)});
  }

  void row_partial(int i) {
    const Step& s = step(i);
    const int t = s.tensor();
    const std::string kind = reduction_text(s.partial());
    const std::string partials = "p" + std::to_string(i);
    row_arrays_.line("RowPartial<$> $[$];", {kind, partials, rows_in_flight()});
    const std::string reduced = planes(s.operands[0]);
    body_.line("$[r] = row_partial<$, kVector>(columns, at, valid[r], $);$",
               {partials, kind, reduced, arguments_.comment(t)});
    after_rows_.line(
        "store_row_partials($, $, rows, at.row + first, columns, at, $);$",
        {arguments_.pointer(t), arguments_.stride(t), partials, arguments_.comment(t)});
  }

  void column_partial(int i) {
    const Step& s = step(i);
    const int t = s.tensor();
    const TileLayout& lies = layout(s.operands[0]);
    for (int w = 0; w < lies.planes(); ++w) {
      const std::string reduced = "s" + std::to_string(i) + suffix(lies, w);
      before_.line("ReducedColumns<$> $;", {reduction_text(s.partial()), reduced});
      const std::string added = value(s.operands[0], w);
      body_.line("add_row<kVector>($, $, valid[r]);", {reduced, added});
      const std::string natural = natural_column(lies, w);
      after_.line(
          "store_column_partial(scratch, $, $, $, at.row / kPartialSpan, ceil_div(rows, "
          "kPartialSpan), columns, at, [&](u32 j) { return $; });$",
          {reduced, arguments_.pointer(t), arguments_.stride(t), natural, arguments_.comment(t)});
    }
  }

  // The column in memory of base column j of a plane.
  std::string natural_column(const TileLayout& lies, int w) {
    if (lies.kind == TileLayout::narrow) return "j";
    return filled("pair_column(j, $, $)", {columns_.half(lies.pairing), std::to_string(w)});
  }

  void store_transposed(int i) {
    const int t = step(i).tensor();
    const int from = step(i).operands[0];
    const TileLayout& lies = layout(from);
    const std::string type = arguments_.stored_type(t);
    for (int w = 0; w < lies.planes(); ++w) {
      const std::string stored = value(from, w);
      if (size_of(tensor(t).dtype) > 1) {
        body_.line("store_column_elements<$>($, $, row, valid[r], $, $);$",
                   {type, arguments_.pointer(t), arguments_.stride(t), columns_.of(lies, w), stored,
                    arguments_.comment(t)});
        continue;
      }
      ++turned_planes_;
      const std::string bytes = "b" + std::to_string(i) + suffix(lies, w);
      before_.line("[[maybe_unused]] TransposedBytes $;", {bytes});
      body_.line("if constexpr (kVector) put_row<$>($, first + r, $);", {type, bytes, stored});
      body_.line("if constexpr (!kVector) store_column_elements<$>($, $, row, valid[r], $, $);$",
                 {type, arguments_.pointer(t), arguments_.stride(t), columns_.of(lies, w), stored,
                  arguments_.comment(t)});
      after_.line("if constexpr (kVector)");
      after_.line(
          "  store_transposed_bytes(scratch, $, $, $, at.row / kPartialSpan * kPartialSpan, rows, "
          "columns, at, [&](u32 j) { return $; });$",
          {bytes, arguments_.pointer(t), arguments_.stride(t), natural_column(lies, w),
           arguments_.comment(t)});
    }
  }

  void abs_max_into(int i) {
    const int from = step(i).operands[0];
    const std::string largest = "m" + std::to_string(i);
    before_.line("u32 $ = 0;", {largest});
    for (int w = 0; w < layout(from).planes(); ++w) {
      const std::string added = value(from, w);
      body_.line("add_magnitudes<$>($, $, valid[r]);",
                 {layout(from).is_adjacent() ? "false" : "kVector", largest, added});
    }
    const int t = step(i).tensor();
    after_.line("raise_maximum(scratch + kTileScratch + $ * kTileWarps, $, $);$",
                {std::to_string(maxima_++), arguments_.pointer(t), largest, arguments_.comment(t)});
  }

  std::string assemble(const std::string& struct_name) const {
    std::string all_aligned;
    for (const std::string& bytes : columns_.aligned())
      all_aligned += (all_aligned.empty() ? "" : " |\n            ") + bytes;
    const std::string is_vector =
        is_whole_ + (all_aligned.empty() ? "" : " &&\n           (" + all_aligned + ") % 16 == 0");
    const std::string rows_loop = filled(
        "#pragma unroll\n      for (u32 r = 0; r < $; ++r) {\n"
        "        $const u32 row = at.row + first + r;\n",
        {rows_in_flight(), by_blocks_ ? "[[maybe_unused]] " : ""});
    const std::string inside = "        const u32 inside = smaller(row, rows - 1);\n";
    const std::string rows = rows_in_flight();
    std::string text = filled(
        "// Tile space $, [$, $].\nstruct $ {\n  static constexpr u32 kThreadRows = $;\n\n"
        "  __device__ static bool is_vector(const Arguments& a, u32 block) {\n"
        "    const u32 columns = $;\n    return $;\n  }\n\n  template <bool kVector>\n"
        "  __device__ __forceinline__ static void run(const Arguments& a, u32 block, "
        "[[maybe_unused]] float* scratch) {\n    const u32 rows = $;\n    const u32 columns = $;\n"
        "$    const TilePosition at = $;\n    const auto base = [&](u32 i) { return $ + i; };\n$$",
        {id_, space_.shape.rows.text(), space_.shape.cols.text(), struct_name,
         std::to_string(rows_.in_flight), column_count_, is_vector, row_count_, column_count_,
         columns_.divisors(), position_,
         by_blocks_ ? "loaded_column<kVector>(at.column, columns)" : "at.column",
         columns_.functions(), before_.text()});
    text += filled(
        "$#pragma unroll $\n    for (u32 first = 0; first < $; first += $) {\n"
        "      u32 valid[$];\n$$        valid[r] = row < rows ? at.valid : 0;\n$$      }\n",
        {rows_.leaves_bytes ? "    constexpr u32 kRows = kVector ? kThreadRows : 1;\n" : "",
         rows_.turns_bytes ? "kVector ? kWarpRows / " + rows + " : 1" : "1",
         by_blocks_ ? "kWarpRows" : "kThreadRows", rows, rows, row_arrays_.text(), rows_loop,
         first_loads_.empty() ? "" : inside, first_loads_.text()});
    if (!loads_.empty() || !gathers_.empty())
      text += filled("$$$$      }\n", {rows_loop, by_blocks_ && !loads_.empty() ? inside : "",
                                       loads_.text(), gathers_.text()});
    return text + filled("$$      }\n$    }\n$  }\n};\n",
                         {rows_loop, body_.text(), after_rows_.text(), after_.text()});
  }

  const ProgramSizes& sizes_;
  const TileMap& map_;
  const int number_;
  const TileSpace& space_;
  const TileLayouts& layouts_;
  const std::string id_;
  LaunchArguments& arguments_;

  const bool by_blocks_;
  TileRows rows_;
  std::string row_count_;
  std::string column_count_;
  std::string position_;  // of the thread
  std::string is_whole_;  // whether the columns of the block's threads are whole vectors
  ColumnText columns_;
  ValueText values_;
  ValueText::Made needed_;
  std::set<std::string> raws_;  // names of loaded values
  int maxima_ = 0;              // number of raised maxima
  int turned_planes_ = 0;       // planes of bytes that are stored by columns

  // Sections of the function, in this order.
  Body before_{4};       // scalars, columns, accumulators
  Body row_arrays_{6};   // loads for each row
  Body first_loads_{8};  // loads that other loads need
  Body loads_{8};
  Body gathers_{8};     // loads that wait for an index, after those that do not
  Body body_{8};        // of one row
  Body after_rows_{6};  // after each set of rows in flight
  Body after_{4};       // after all rows
};

}  // namespace

KernelLaunch lower_tile_spaces(const ProgramSizes& sizes, const std::vector<int>& spaces) {
  const program::TileMap map = program::map_tiles(sizes.program());
  LaunchArguments arguments(sizes);
  std::string structs;
  Body dispatch(2);
  int64_t blocks = 0;
  bool by_blocks = false;
  bool leaves_bytes = false;
  int maxima = 0;
  int turned_planes = 0;
  for (size_t i = 0; i < spaces.size(); ++i) {
    const auto layouts =
        layouts_of_warp(sizes.program(), map, map.spaces[spaces[i]], sizes.values());
    if (const auto* refusal = std::get_if<Refusal>(&layouts)) throw Error(text(*refusal, sizes));
    const SpaceText space =
        TileSpaceWriter(sizes, map, spaces[i], std::get<TileLayouts>(layouts), arguments).run();
    structs += space.text + "\n";
    by_blocks = by_blocks || space.by_blocks;
    leaves_bytes = leaves_bytes || space.leaves_bytes;
    maxima = std::max(maxima, space.maxima);
    turned_planes = std::max(turned_planes, space.turned_planes);
    const auto first_block = [&](size_t k) {
      return arguments.number("first_block_" + std::to_string(spaces[k]), blocks);
    };
    const std::string first = i == 0 ? "" : " - " + first_block(i);
    blocks += space.blocks;
    const std::string run =
        filled("run_space<$>(a, block_index()$, scratch);", {space.name, first});
    if (i + 1 == spaces.size()) {
      dispatch.line(run);
    } else {
      dispatch.line("if (block_index() < $) return $", {first_block(i + 1), run});
    }
  }
  // Where no epilogue of a GEMM stores bytes by columns, such a kernel also computes what the
  // epilogue would, for which half of a multiprocessor's registers are too few.
  const bool is_epilogue = turned_planes > 2 && sizes.target().planes.most_bytes == 0;
  return launch_of(
      KernelParts::plain(
          identifier(sizes.program().name + "_tiles"), {"kernels/tile_kernel.cuh"}, structs,
          // Joining bytes unrolls rows, which would leave too few registers for a second block.
          filled("__launch_bounds__(kTileThreads, $)", {leaves_bytes && !is_epilogue ? "2" : "1"}),
          by_blocks ? filled("  __shared__ float scratch[kTileScratch + $ * kTileWarps];\n",
                             {std::to_string(maxima)})
                    : "  float* const scratch = nullptr;\n",
          dispatch.text()),
      sizes, arguments, blocks, device::kTileThreads);
}

}  // namespace coda::gpu
