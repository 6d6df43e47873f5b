// SPDX-License-Identifier: Apache-2.0
// A thread holds eight base columns of a few rows. Loads of all its rows come first, so that many
// are in flight; then row by row the steps in program order, one line each, a value being one plane
// of eight elements, or two (the members of its pairs).
#include "hopper/tile_space_text.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "coda/error.h"
#include "device/tile_position.cuh"
#include "hopper/column_text.h"
#include "hopper/expressions.h"
#include "hopper/tile_layout.h"
#include "program/problem.h"
#include "program/vocabulary.h"

namespace coda::hopper {
namespace {

using program::TileMap;
using Layout = TileLayout;

// What a thread holds of a step's value: names of planes, of a row's float, or a literal.
using Planes = std::vector<std::string>;

class SpaceWriter {
 public:
  SpaceWriter(const Program& program, const TileMap& map, int space, const DimValues& sizes,
              ArgumentText& arguments)
      : program_(program),
        map_(map),
        space_(map.spaces[space]),
        id_(std::to_string(space)),
        sizes_(sizes),
        arguments_(arguments),
        columns_text_(arguments) {}

  TileSpaceText run() {
    for (int i : space_.steps) {
      reduces_columns_ = reduces_columns_ || step(i).kind == StepKind::column_partial;
    }
    find_stored();
    layouts_ = tile_layouts(program_, map_, space_, sizes_);
    find_needed();
    choose_rows();
    rows_ = arguments_.number("rows_" + id_, size(space_.shape.rows));
    columns_ = arguments_.number("columns_" + id_, size(space_.shape.cols));
    aligned("columns * 2");
    require(size(space_.shape.cols) < int64_t{1} << 31,
            describe(space_.steps.front()) + " has too many columns for one launch");
    std::string spans;
    if (!reduces_columns_) {
      const int64_t count = (size(space_.shape.cols) + kPartialSpan - 1) / kPartialSpan;
      spans = columns_text_.divisor(arguments_.number("spans_" + id_, count), count);
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
      if (program::is_effect(s.kind)) stored_.push_back(s.tensor);
    }
  }
  bool is_stored(int t) const {
    return std::find(stored_.begin(), stored_.end(), t) != stored_.end();
  }

  const Layout& layout(int i) const { return layouts_.at(i); }

  // ---- Which planes are used: a member that nothing reads is not loaded.

  void need(int i, unsigned planes) { needed_[i] |= planes; }
  void find_needed() {
    constexpr unsigned kAll = 3;
    for (auto at = space_.steps.rbegin(); at != space_.steps.rend(); ++at) {
      const Step& s = step(*at);
      if (program::is_effect(s.kind)) needed_[*at] = kAll;
      const unsigned own = needed_[*at];
      for (size_t o = 0; o < s.operands.size(); ++o) {
        unsigned planes = own;
        if (s.kind == StepKind::split_pair) planes = own != 0 ? 1U << s.which : 0;
        if (s.kind == StepKind::merge_pairs) planes = (own >> o & 1) != 0 ? kAll : 0;
        if (s.kind == StepKind::reduce_group || s.kind == StepKind::repeat_group ||
            s.kind == StepKind::select_column) {
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
  // within a thread (docs/performance.md). Where columns are reduced a warp walks down its rows,
  // and about eight 16-byte loads of a thread are in flight. What only reduces rows has little to
  // do for each but more for all.
  void choose_rows() {
    int pieces = 0;  // 16-byte loads of a row
    bool is_wide = false;
    bool stores_tiles = false;
    for (int i : space_.steps) {
      const Step& s = step(i);
      stores_tiles = stores_tiles || s.kind == StepKind::store_tile;
      if (s.kind != StepKind::load_tile) continue;
      const int bytes = static_cast<int>(size_of(tensor(s.tensor).dtype));
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

  // ---- Where columns stand.

  // The name of a function i -> column of the thread's element i.
  std::string columns_of(const Layout& layout, int w) {
    std::string columns = "base";
    if (!(layout.pairing == Dim(0))) {
      const std::string pair = "pair" + pairing_suffix(layout.pairing);
      columns = pair + "_" + std::to_string(w);
      columns_text_.declare(
          columns, "pair_column(base(i), " + half(layout.pairing) + ", " + std::to_string(w) + ")",
          layout.is_adjacent() ? 2 : 1);
    }
    if (layout.kind != Layout::grouped) return columns;
    const std::string group = columns + "_of" + std::to_string(layout.group);
    columns_text_.declare(group, columns + "(i) / " + std::to_string(layout.group), 0);
    return group;
  }
  std::string table_width(int t) {
    return columns_text_.divisor(arguments_.stored_columns(t), size(tensor(t).shape.cols));
  }
  std::string pairing_suffix(const Dim& pairing) {
    auto found = std::find(pairings_.begin(), pairings_.end(), pairing);
    if (found == pairings_.end()) found = pairings_.insert(found, pairing);
    return std::to_string(found - pairings_.begin());
  }
  std::string half(const Dim& pairing) {
    const std::string number =
        arguments_.number("half_" + id_ + "_" + pairing_suffix(pairing), size(pairing) / 2);
    if (pairing != Dim(2)) aligned(number + " * 2");
    return columns_text_.divisor(number, size(pairing) / 2);
  }
  static std::string is_vector_text(const Layout& layout) {
    return layout.is_vector() ? "kVector" : "false";
  }

  std::string loaded(const std::string& valid) const {
    return reduces_columns_ ? "loaded_columns<kVector>(" + valid + ")" : valid;
  }

  // Vectors are used where all of these are multiples of 16.
  void aligned(const std::string& bytes) {
    if (std::find(aligned_.begin(), aligned_.end(), bytes) == aligned_.end()) {
      aligned_.push_back(bytes);
    }
  }
  void aligned_tensor(int t, bool has_rows) {
    aligned(arguments_.pointer(t));
    if (has_rows) {
      aligned("static_cast<u64>(" + arguments_.stride(t) + ") * " +
              std::to_string(size_of(tensor(t).dtype)));
    }
  }
  std::string stored_type(int t) const { return std::string(stored_text(tensor(t).dtype)); }

  // ---- Values.

  // The planes of operand o as a value of `layout`.
  Planes operand(int o, const Layout& layout) {
    Planes planes = map_.on_tile[o] ? values_.at(o) : vector(o, layout);
    if (planes.size() == 1 && layout.planes() == 2) planes.push_back(planes[0]);
    return planes;
  }

  // A value that is no tile, for use beside one of `layout`.
  Planes vector(int i, const Layout& layout) {
    const Step& s = step(i);
    if (s.kind == StepKind::constant) return {"(" + number_text(s.number) + ")"};
    const bool is_per_column = s.shape.is_per_column();
    std::string key;
    if (is_per_column) {
      for (int w = 0; w < layout.planes(); ++w) key += columns_of(layout, w) + " ";
    }
    const auto [found, is_new] = vectors_.try_emplace({i, key});
    if (!is_new) return found->second;
    std::string variant;
    if (is_per_column && layout != Layout{}) variant = "_" + columns_of(layout, 0);
    const int planes = is_per_column ? layout.planes() : 1;
    Planes result;
    for (int w = 0; w < planes; ++w) {
      result.push_back(name('v', i, variant + plane_suffix(planes, w)));
    }
    for (int w = 0; w < planes; ++w) make_vector(i, layout, w, result[w]);
    return vectors_[{i, key}] = result;
  }

  void make_vector(int i, const Layout& layout, int w, const std::string& value) {
    const Step& s = step(i);
    const std::string plain = "const " + std::string(s.shape.is_per_column() ? "auto " : "float ");
    switch (s.kind) {
      case StepKind::load_scalar:
        before_ += "    const float " + value + " = load_element<" + stored_type(s.tensor) + ">(" +
                   arguments_.pointer(s.tensor) + ", 0);" + comment(s.tensor);
        return;
      case StepKind::load_per_row: {
        const std::string rows = "r" + std::to_string(i);
        row_arrays_ += "      float " + rows + "[kThreadRows];\n";
        first_loads_ += "        " + rows + "[r] = load_of_row<" + stored_type(s.tensor) + ">(" +
                        element_of_row(s.tensor) + ");" + comment(s.tensor);
        body_ += "        const float " + value + " = " + rows + "[r];\n";
        return;
      }
      case StepKind::load_per_column: {
        const std::string raw = "c" + value.substr(1);
        before_ += "    const auto " + raw + " = load_eight<" + stored_type(s.tensor) +
                   ", Access::cached, " + is_vector_text(layout) + ">(" +
                   arguments_.pointer(s.tensor) + ", 0, " + loaded("at.valid") + ", " +
                   columns_of(layout, w) + ");" + comment(s.tensor);
        if (layout.is_vector()) aligned_tensor(s.tensor, false);
        body_ += "        const auto " + value + " = values(" + raw + ");\n";
        return;
      }
      case StepKind::column_index:
        body_ += "        const auto " + value + " = column_indices<" + is_vector_text(layout) +
                 ">(" + columns_of(layout, w) + ");\n";
        return;
      case StepKind::elementwise:
      case StepKind::as_stored: {
        std::vector<std::string> operands;
        for (int o : s.operands) {
          const Planes planes = vector(o, layout);
          operands.push_back(planes.size() == 1 ? planes[0] : planes[w]);
        }
        const std::string line = plain + value + " = " + expression_of(s, operands) + ";\n";
        (s.shape.is_scalar() ? before_ += "    " : body_ += "        ") += line;
        return;
      }
      default: throw InternalError("a vector of a tile program that is neither loaded nor made");
    }
  }

  static std::string expression_of(const Step& s, const std::vector<std::string>& operands) {
    if (s.kind == StepKind::elementwise) return expression(s.op, operands);
    return "as_stored<" + std::string(stored_text(s.dtype)) + ">(" + operands[0] + ")";
  }
  std::string comment(int t) const { return "  // " + tensor(t).name + "\n"; }

  // Of a vector; what a row outside reads is not used.
  std::string element_of_row(int t) {
    return arguments_.pointer(t) + ", inside, " + arguments_.row_bytes(t);
  }

  // An i32 vector as an index of each row.
  std::string index_of_row(int t) {
    const std::string index = "i" + std::to_string(t);
    if (std::find(indices_.begin(), indices_.end(), t) == indices_.end()) {
      indices_.push_back(t);
      row_arrays_ += "      u32 " + index + "[kThreadRows];\n";
      first_loads_ +=
          "        " + index + "[r] = index_of_row(" + element_of_row(t) + ");" + comment(t);
    }
    return index + "[r]";
  }

  // ---- Steps.

  void write(int i) {
    const Step& s = step(i);
    if (!map_.on_tile[i] && !program::is_effect(s.kind)) return;  // written where it is used
    switch (s.kind) {
      case StepKind::load_tile: return load_tile(i);
      case StepKind::elementwise:
      case StepKind::as_stored: return elementwise(i);
      case StepKind::split_pair: values_[i] = {values_.at(s.operands[0])[s.which]}; return;
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
    const Layout lies = layout(i);
    std::string row = reduces_columns_ ? "inside" : "row";
    if (s.row_index >= 0) {
      row =
          "table_row(" + index_of_row(s.row_index) + ", " + arguments_.stored_rows(s.tensor) + ")";
    }
    const bool is_table = s.row_index >= 0 || s.repeat > 1;
    // A thread reads four bytes an element, or adjacent pairs, in two halves of a sector: the
    // second finds it in L1.
    const bool is_halved = size_of(tensor(s.tensor).dtype) > 2 || lies.is_adjacent();
    const std::string access = is_stored(s.tensor)     ? "in_place"
                               : is_table || is_halved ? "cached"
                                                       : "streamed";
    if (lies.kind != Layout::grouped) aligned_tensor(s.tensor, true);
    if (lies.is_adjacent()) return load_pairs(i, row, access);
    Planes planes;
    for (int w = 0; w < lies.planes(); ++w) {
      const std::string suffix = plane_suffix(lies.planes(), w);
      planes.push_back(name('v', i, suffix));
      if (!is_needed(i, w)) continue;
      std::string columns = columns_of(lies, w);
      if (s.repeat > 1) {
        if (lies.is_vector()) aligned(arguments_.stored_columns(s.tensor) + " * 2");
        columns_text_.declare("table" + std::to_string(i) + suffix,
                              columns + "(i) % " + table_width(s.tensor), lies.is_vector() ? 1 : 0);
        columns = "table" + std::to_string(i) + suffix;
      }
      const std::string raw = name('t', i, suffix);
      row_arrays_ += "      typename LoadedEight<" + is_vector_text(lies) + ", " +
                     stored_type(s.tensor) + ">::Type " + raw + "[kThreadRows];\n";
      std::string& loads = s.row_index >= 0 ? gathers_ : loads_;
      loads += "        " + raw + "[r] = load_eight<" + stored_type(s.tensor) +
               ", Access::" + access + ", " + is_vector_text(lies) + ">(" +
               arguments_.pointer(s.tensor) + ", " + arguments_.row_start(row, s.tensor) + ", " +
               loaded("valid[r]") + ", " + columns + ");" + comment(s.tensor);
      body_ +=
          "        const auto " + planes.back() + " = values(" + raw + "[r]);" + comment(s.tensor);
    }
    values_[i] = planes;
  }

  // Both members of adjacent pairs, as they lie in memory.
  void load_pairs(int i, const std::string& row, const std::string& access) {
    const Step& s = step(i);
    values_[i] = {name('v', i, "_0"), name('v', i, "_1")};
    if (!is_needed(i, 0) && !is_needed(i, 1)) return;
    std::string columns = columns_of(layout(i), 0);
    if (s.repeat > 1) {
      aligned(arguments_.stored_columns(s.tensor));
      columns_text_.declare("table" + std::to_string(i), columns + "(i) % " + table_width(s.tensor),
                            2);
      columns = "table" + std::to_string(i);
    }
    const std::string raw = name('t', i);
    row_arrays_ += "      typename LoadedPairs<kVector, " + stored_type(s.tensor) + ">::Type " +
                   raw + "[kThreadRows];\n";
    std::string& loads = s.row_index >= 0 ? gathers_ : loads_;
    loads += "        " + raw + "[r] = load_pairs<" + stored_type(s.tensor) +
             ", Access::" + access + ", kVector>(" + arguments_.pointer(s.tensor) + ", " +
             arguments_.row_start(row, s.tensor) + ", " + loaded("valid[r]") + ", " + columns +
             ");" + comment(s.tensor);
    for (int w = 0; w < 2; ++w) {
      if (!is_needed(i, w)) continue;
      body_ += "        const auto " + values_[i][w] + " = members<" + std::to_string(w) + ">(" +
               raw + "[r]);" + comment(s.tensor);
    }
  }

  void elementwise(int i) {
    const Step& s = step(i);
    const Layout lies = layout(i);
    std::vector<Planes> operands;
    for (int o : s.operands) operands.push_back(operand(o, lies));
    Planes planes;
    for (int w = 0; w < lies.planes(); ++w) {
      planes.push_back(name('v', i, plane_suffix(lies.planes(), w)));
      if (!is_needed(i, w)) continue;
      std::vector<std::string> texts;
      for (const Planes& o : operands) texts.push_back(o.size() == 1 ? o[0] : o[w]);
      body_ += "        const auto " + planes.back() + " = " + expression_of(s, texts) + ";\n";
    }
    values_[i] = planes;
  }

  void reduce_group(int i) {
    const Layout lies = layout(i);
    const Planes from = values_.at(step(i).operands[0]);
    const std::string call = " = group_sum<" + std::to_string(lies.base_group()) + ">(";
    Planes planes;
    for (int w = 0; w < lies.planes(); ++w) {
      planes.push_back(name('v', i, plane_suffix(lies.planes(), w)));
      body_ += "        const auto " + planes.back() + call +
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
    return s.kind == StepKind::as_stored && s.dtype == stored ? s.operands[0] : i;
  }

  void store_tile(int i) {
    const Step& s = step(i);
    const Layout lies = layout(s.operands[0]);
    const Planes planes = operand(unrounded(s.operands[0], tensor(s.tensor).dtype), lies);
    const std::string where = arguments_.pointer(s.tensor) + ", " +
                              arguments_.row_start("row", s.tensor) + ", valid[r], ";
    if (lies.kind != Layout::grouped) aligned_tensor(s.tensor, true);
    if (lies.is_adjacent()) {
      body_ += "        store_pairs<" + stored_type(s.tensor) + ", kVector>(" + where +
               columns_of(lies, 0) + ", " + join(planes) + ");" + comment(s.tensor);
      return;
    }
    for (int w = 0; w < lies.planes(); ++w) {
      if (lies.kind == Layout::grouped) {
        // The columns before they are divided.
        const Layout natural{.kind = lies.pairing == Dim(0) ? Layout::narrow : Layout::wide,
                             .pairing = lies.pairing};
        body_ += "        store_groups<" + stored_type(s.tensor) + ">(" + where +
                 std::to_string(lies.group) + ", " + columns_of(natural, w) + ", " + planes[w] +
                 ");" + comment(s.tensor);
      } else {
        body_ += "        store_eight<" + stored_type(s.tensor) + ", kVector>(" + where +
                 columns_of(lies, w) + ", " + planes[w] + ");" + comment(s.tensor);
      }
    }
  }

  void store_selected(int i) {
    const Step& s = step(i);
    const Step& selected = step(s.operands[0]);
    const int from = selected.operands[0];
    const Layout lies = layout(from);
    const Planes planes = operand(from, lies);
    const std::string index = index_of_row(step(selected.operands[1]).tensor);
    for (int w = 0; w < lies.planes(); ++w) {
      body_ += "        store_selected<" + stored_type(s.tensor) + ", " +
               (lies.is_adjacent() ? "false" : "kVector") + ">(" + arguments_.pointer(s.tensor) +
               ", " + arguments_.row_start("row", s.tensor) + ", valid[r], " + index +
               ", columns * " + std::to_string(lies.planes()) + ", " + columns_of(lies, w) + ", " +
               planes[w] + ");" + comment(s.tensor);
    }
  }

  void row_partial(int i) {
    const Step& s = step(i);
    const std::string kind(reduction_text(s.partial));
    const std::string partials = name('p', i);
    row_arrays_ += "      RowPartial<" + kind + "> " + partials + "[kThreadRows];\n";
    body_ += "        " + partials + "[r] = row_partial<" + kind +
             ", kVector>(columns, at, valid[r], " +
             join(operand(s.operands[0], layout(s.operands[0]))) + ");" + comment(s.tensor);
    after_rows_ += "      store_row_partials(" + arguments_.pointer(s.tensor) + ", " +
                   arguments_.stride(s.tensor) + ", rows, at.row + first, columns, at, " +
                   partials + ");" + comment(s.tensor);
  }

  void column_partial(int i) {
    const Step& s = step(i);
    const Layout lies = layout(s.operands[0]);
    const Planes planes = operand(s.operands[0], lies);
    for (int w = 0; w < lies.planes(); ++w) {
      const std::string reduced = name('s', i, plane_suffix(lies.planes(), w));
      before_ +=
          "    ReducedColumns<" + std::string(reduction_text(s.partial)) + "> " + reduced + ";\n";
      body_ += "        add_row<kVector>(" + reduced + ", " + planes[w] + ", valid[r]);\n";
      const std::string natural =
          lies.kind == Layout::narrow
              ? "j"
              : "pair_column(j, " + half(lies.pairing) + ", " + std::to_string(w) + ")";
      after_ += "    store_column_partial(scratch, " + reduced + ", " +
                arguments_.pointer(s.tensor) + ", " + arguments_.stride(s.tensor) +
                ", at.row / kPartialSpan, ceil_div(rows, kPartialSpan), columns, at, [&](u32 j) { "
                "return " +
                natural + "; });" + comment(s.tensor);
    }
  }

  std::string assemble(const std::string& struct_name) const {
    std::string all_aligned;
    for (const std::string& bytes : aligned_) {
      all_aligned += all_aligned.empty() ? "" : " |\n            ";
      all_aligned += bytes == "columns * 2" ? columns_ + " * 2" : bytes;
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
        rows_ + ";\n    const u32 columns = " + columns_ + ";\n" + columns_text_.divisors() +
        "    const TilePosition at = " + position_ +
        ";\n    const auto base = [&](u32 i) { return " +
        (reduces_columns_ ? "loaded_column<kVector>(at.column, columns)" : "at.column") +
        " + i; };\n" + columns_text_.functions() + before_;
    text += "#pragma unroll 1\n    for (u32 first = 0; first < " +
            std::string(reduces_columns_ ? "kWarpRows" : "kThreadRows") +
            "; first += kThreadRows) {\n      u32 valid[kThreadRows];\n" + row_arrays_ + rows_loop +
            "        valid[r] = row < rows ? at.valid : 0;\n" +
            (first_loads_.empty() ? "" : inside) + first_loads_ + "      }\n";
    if (!loads_.empty() || !gathers_.empty()) {
      text += rows_loop + (reduces_columns_ ? inside : "") + loads_ + gathers_ + "      }\n";
    }
    text += rows_loop + body_ + "      }\n" + after_rows_ + "    }\n" + after_ + "  }\n};\n";
    return text;
  }

  const Program& program_;
  const TileMap& map_;
  const TileSpace& space_;
  const std::string id_;
  const DimValues& sizes_;
  ArgumentText& arguments_;

  bool reduces_columns_ = false;
  int thread_rows_ = 1;
  std::vector<int> stored_;  // tensors that the program writes
  std::map<int, Layout> layouts_;
  std::map<int, unsigned> needed_;                         // of each step: planes, as bits
  std::map<int, Planes> values_;                           // of tiles
  std::map<std::pair<int, std::string>, Planes> vectors_;  // by the columns they lie in
  std::vector<Dim> pairings_;
  std::vector<std::string> aligned_;
  std::vector<int> indices_;

  // Parts of the text, in this order.
  std::string rows_;
  std::string columns_;
  ColumnText columns_text_;
  std::string position_;     // the thread's
  std::string before_;       // scalars, columns, accumulators
  std::string row_arrays_;   // what is loaded of each row
  std::string first_loads_;  // what other loads need
  std::string loads_;
  std::string gathers_;     // loads that wait for an index: behind those that wait for nothing
  std::string body_;        // of one row
  std::string after_rows_;  // that are in flight together
  std::string after_;       // all rows
};

}  // namespace

TileSpaceText tile_space_text(const Program& program, const TileMap& map, int space,
                              const DimValues& sizes, ArgumentText& arguments) {
  return SpaceWriter(program, map, space, sizes, arguments).run();
}

}  // namespace coda::hopper
