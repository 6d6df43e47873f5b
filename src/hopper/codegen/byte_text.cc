// SPDX-License-Identifier: Apache-2.0
#include "hopper/codegen/byte_text.h"

namespace coda::hopper {

std::string ByteText::bytes(int i, int from, int plane, const std::string& value) {
  const int tensor = sizes_.step(i).tensor();
  std::string& name = bytes_[{from, plane, sizes_.tensor(tensor).dtype}];
  if (!name.empty()) return name;
  name = names_.make(names_.of_step(from) + "_bytes");
  lines_.before.line("FragmentBytes<$> $;", {arguments_.stored_type(tensor), name});
  lines_.pairs.line("$.put(pair, $);", {name, value});
  return name;
}

void ByteText::store_by(const char* function, int i, const std::string& bytes,
                        const std::string& place) {
  const int tensor = sizes_.step(i).tensor();
  lines_.after.line("$($, $, $, at, [&](u32 column) { return $; });$",
                    {function, arguments_.pointer(tensor), arguments_.stride(tensor), bytes, place,
                     arguments_.comment(tensor)});
}

void ByteText::store(int i, int from, int plane, const std::string& value) {
  store_by("store_byte_rows", i, bytes(i, from, plane, value), places_.natural(i, plane, "column"));
}

void ByteText::store_transposed(int i, int from, int plane, const std::string& value) {
  store_by("store_byte_columns", i, bytes(i, from, plane, value),
           places_.natural(from, plane, "column"));
}

void ByteText::raise(int i, int from, const std::string& value, const std::string& valid) {
  std::string& name = largest_[i];
  if (name.empty()) {
    const std::string scalar = arguments_.pointer(sizes_.step(i).tensor());
    name = names_.make(names_.of_step(from) + "_largest");
    lines_.sub_fields.line("u32 $[2] = {0, 0};", {name});
    lines_.sub_fields.line("u32 $_known;", {name});
    lines_.sub_begin.line("sub.$_known = raised_word($);", {name, scalar});
    lines_.sub_end.line("raise_magnitude($, sub.$, sub.$_known, at);", {scalar, name, name});
  }
  lines_.pairs.line("add_pair_magnitudes(sub.$[pair % 2], $, $);", {name, value, valid});
}

}  // namespace coda::hopper
