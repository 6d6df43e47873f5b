// SPDX-License-Identifier: Apache-2.0
// The lines of one pass over a sub-tile's fragments, as a function of the tile space's CUDA struct.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "gpu/codegen/function_text.h"
#include "gpu/target/fragment_map.h"

namespace coda::gpu {

// One pass over a sub-tile's fragments: either the main pass, which computes what the effects need,
// or an earlier pass that adds up groups of columns. Remembers the names of values that the pass
// computes once.
struct Pass {
  int walk = -1;  // number of the earlier pass; -1: the main pass
  bool is_walk() const { return walk >= 0; }
  std::map<std::pair<int, int>, std::string> packed_names;  // step, plane
  Body before{4};  // arrays that live longer than the loop over pairs
  Body early{6};   // direct loads, issued before the first use
  Body body{6};
  Body after{4};
};

// `ahead`: placed after the declarations of `before`; `last`: at the end of each pair.
inline std::string fragment_lines(const FragmentMap& fragment, const Pass& pass,
                                  const std::string& ahead, const std::string& last) {
  const bool row = pass.body.mentions("row") || pass.body.mentions("inside") ||
                   pass.early.mentions("row") || pass.early.mentions("inside");
  const auto head = [&](const Body& body) {
    std::string text = "#pragma unroll\n    for (u32 pair = 0; pair < kPairs; ++pair) {\n";
    const bool inside = body.mentions("inside");
    if (row && (inside || body.mentions("row")))
      text += "      const u32 row = " + fragment.row_of_pair() + ";\n";
    if (inside || body.mentions("column"))
      text += "      const u32 column = " + fragment.column_of_pair() + ";\n";
    if (inside)
      text += "      const u32 inside = row < at.rows ? inside_pair(column, at.columns) : 0;\n";
    return text;
  };
  std::string lines = pass.before.text() + ahead;
  if (!pass.early.empty()) lines += head(pass.early) + pass.early.text() + "    }\n";
  return lines + head(pass.body) + pass.body.text() + last + "    }\n" + pass.after.text();
}

}  // namespace coda::gpu
