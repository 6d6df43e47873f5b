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
  const std::string field = (is_kept() ? "rows." : "sub.") + name;
  const std::string plain = "sub." + is_plain();
  if (empty()) fields_.line("bool " + is_plain() + ";");
  // What is kept is read by every sub-tile, but made by one.
  if (is_kept()) row_fields_.line("mutable DirectPairs<" + stored + ", kChunks> " + name + ";");
  if (!is_kept()) fields_.line("DirectPairs<" + stored + "> " + name + ";");
  begin_.line(plain + " = " + (empty() ? "is_whole(at)" : plain) + " && has_aligned_pairs<" +
              stored + ">(" + pointer + ", " + places_.stride(t) + ");");
  begin_.line(field + ".begin(" + pointer + ", " + places_.element(i, plane, rows[0], "at.column") +
              ",");
  begin_.line(std::string(field.size() + 7, ' ') + places_.element(i, plane, rows[1], "at.column") +
              ");");
  plain_.line(field + ".template load<kChunk>();");
  const std::string pair =
      field + (is_kept() ? ".chunk[kChunk][pair]" : ".chunk[kChunk % 2][pair]");
  partly_.line(pair + " = " + value + ";");
  return pair;
}

std::string DirectLoads::function_text() const {
  if (empty()) return "";
  return function("void",
                  name() +
                      "(const Arguments& a, const Rows& rows, SubTile& sub,\n"
                      "                                  const Position& at)",
                  "    if (sub." + is_plain() + ") {\n" + plain_.text() +
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
  if (empty()) return "";
  const std::string first = name() + "<kBlock, 0>(a, rows, sub, at);\n";
  if (!is_kept()) return begin_.text() + "    " + first;
  return begin_.text() + "    if (at.sub_tile == 0) " + first;
}

std::string DirectLoads::ahead() const {
  if (empty()) return "";
  return "    if constexpr (kChunk + 1 < kChunks) {\n"
         "      Position next = at;\n"
         "      next.column += kChunkColumns;\n      " +
         std::string(is_kept() ? "if (at.sub_tile == 0) " : "") + name() +
         "<kBlock, kChunk + 1>(a, rows, sub, next);\n"
         "    }\n";
}

}  // namespace coda::hopper
