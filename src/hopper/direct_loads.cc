// SPDX-License-Identifier: Apache-2.0
// One flag a sub-tile, the same for all its threads, tells whether all its loads are plain.
#include "hopper/direct_loads.h"

#include "hopper/expressions.h"

namespace coda::hopper {

std::string DirectLoads::add(int i, int plane, const std::string& name, const std::string& value,
                             const std::string (&rows)[2]) {
  const int t = sizes_.step(i).tensor;
  const std::string stored(stored_text(sizes_.tensor(t).dtype));
  const std::string pointer = arguments_.pointer(t);
  const std::string field = "sub." + name;
  if (empty()) fields_.line("bool is_plain;");
  fields_.line("DirectPairs<" + stored + "> " + name + ";");
  begin_.line(std::string("sub.is_plain = ") + (empty() ? "is_whole(at)" : "sub.is_plain") +
              " && has_aligned_pairs<" + stored + ">(" + pointer + ", " + places_.stride(t) + ");");
  begin_.line(field + ".begin(" + pointer + ", " + places_.element(i, plane, rows[0], "at.column") +
              ",");
  begin_.line(std::string(field.size() + 7, ' ') + places_.element(i, plane, rows[1], "at.column") +
              ");");
  plain_.line(field + ".template load<kChunk>();");
  partly_.line(field + ".chunk[kChunk % 2][pair] = " + value + ";");
  return field + ".chunk[kChunk % 2][pair]";
}

std::string DirectLoads::function_text() const {
  if (empty()) return "";
  return function("void",
                  "load_ahead(const Arguments& a, const Rows& rows, SubTile& sub,\n"
                  "                                  const Position& at)",
                  "    if (sub.is_plain) {\n" + plain_.text() +
                      "    } else {\n"
                      "#pragma unroll\n"
                      "      for (u32 pair = 0; pair < kPairs; ++pair) {\n"
                      "        const u32 row = at.row + 8 * (pair % 2);\n"
                      "        const u32 column = at.column + 8 * (pair / 2);\n"
                      "        const u32 inside = row < at.rows ? inside_pair(column, at.columns) "
                      ": 0;\n" +
                      partly_.text() + "      }\n    }\n",
                  "  template <u32 kBlock, u32 kChunk>\n");
}

std::string DirectLoads::begin() const {
  return empty() ? "" : begin_.text() + "    load_ahead<kBlock, 0>(a, rows, sub, at);\n";
}

std::string DirectLoads::ahead() const {
  if (empty()) return "";
  return "    if constexpr (kChunk + 1 < kChunks) {\n"
         "      Position next = at;\n"
         "      next.column += kChunkColumns;\n"
         "      load_ahead<kBlock, kChunk + 1>(a, rows, sub, next);\n"
         "    }\n";
}

}  // namespace coda::hopper
