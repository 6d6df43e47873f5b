// SPDX-License-Identifier: Apache-2.0
// Column arithmetic uses divisors that are passed as numbers, so that the text does not depend on
// sizes.
#include "gpu/codegen/column_text.h"

#include <algorithm>

#include "device/tiles/tile_position.cuh"
#include "gpu/codegen/function_text.h"

namespace coda::gpu {

std::string ColumnText::of(const TileLayout& layout, int w) {
  std::string columns = "base";
  if (!(layout.pairing == Dim(0))) {
    const std::string pair = "pair" + pairing_suffix(layout.pairing);
    const std::string member = std::to_string(w);
    columns = pair + "_" + member;
    declare(columns, filled("pair_column(base(i), $, $)", {half(layout.pairing), member}),
            layout.is_adjacent() ? 2 : 1);
  }
  if (layout.kind != TileLayout::grouped) return columns;
  const std::string group = columns + "_of" + std::to_string(layout.group);
  declare(group, columns + "(i) / " + std::to_string(layout.group), 0);
  return group;
}

std::string ColumnText::in_table(const std::string& name, const std::string& columns, int t,
                                 int stride) {
  const int64_t width = arguments_.sizes().size(arguments_.sizes().tensor(t).shape.cols);
  declare(name, columns + "(i) % " + divisor(arguments_.stored_columns(t), width), stride);
  return name;
}

std::string ColumnText::pairing_suffix(const Dim& pairing) {
  auto found = std::find(pairings_.begin(), pairings_.end(), pairing);
  if (found == pairings_.end()) found = pairings_.insert(found, pairing);
  return std::to_string(found - pairings_.begin());
}

std::string ColumnText::half(const Dim& pairing) {
  const int64_t value = arguments_.sizes().size(pairing) / 2;
  const std::string number =
      arguments_.number("half_" + id_ + "_" + pairing_suffix(pairing), value);
  if (pairing != Dim(2)) align(number + " * 2");
  return divisor(number, value);
}

std::string ColumnText::divisor(const std::string& number, int64_t value) {
  const size_t open = number.find('[') + 1;
  const std::string name = number.substr(open, number.find(']') - open);
  std::string result = "by_" + name;
  if (known_.insert(result).second) {
    const device::Divisor by = device::divisor_of(static_cast<uint32_t>(value));
    divisors_ += filled("    const auto $ = column_divisor<kVector>({$, $, $});\n",
                        {result, number, arguments_.number(name + "_multiplier", by.multiplier),
                         arguments_.number(name + "_shift", by.shift)});
  }
  return result;
}

std::string ColumnText::is_vector(const TileLayout& layout) {
  return layout.is_vector() ? "kVector" : "false";
}

std::string ColumnText::loaded(const std::string& valid) const {
  return reduces_columns_ ? "loaded_columns<kVector>(" + valid + ")" : valid;
}

void ColumnText::align(const std::string& bytes) {
  if (std::find(aligned_.begin(), aligned_.end(), bytes) == aligned_.end()) {
    aligned_.push_back(bytes);
  }
}

void ColumnText::align_tensor(int t, bool has_rows) {
  align(arguments_.pointer(t));
  if (has_rows) {
    align(filled(
        "static_cast<u64>($) * $",
        {arguments_.stride(t), std::to_string(size_of(arguments_.sizes().tensor(t).dtype))}));
  }
}

void ColumnText::declare(const std::string& name, const std::string& expression, int stride) {
  if (!known_.insert(name).second) return;
  std::string function = filled("[&](u32 i) { return $; }", {expression});
  if (stride != 0)
    function = filled("neighbours<kVector$>($)",
                      {stride == 1 ? "" : ", " + std::to_string(stride), function});
  functions_ += filled("    const auto $ = $;\n", {name, function});
}

}  // namespace coda::gpu
