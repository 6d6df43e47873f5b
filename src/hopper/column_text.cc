// SPDX-License-Identifier: Apache-2.0
#include "hopper/column_text.h"

#include "device/tile_position.cuh"

namespace coda::hopper {

void ColumnText::declare(const std::string& name, const std::string& expression, int stride) {
  if (!known_.insert(name).second) return;
  std::string function = "[&](u32 i) { return " + expression + "; }";
  if (stride != 0) {
    const std::string apart = stride == 1 ? "" : ", " + std::to_string(stride);
    function = "neighbours<kVector" + apart + ">(" + function + ")";
  }
  functions_ += "    const auto " + name + " = " + function + ";\n";
}

std::string ColumnText::divisor(const std::string& number, int64_t value) {
  const size_t open = number.find('[') + 1;
  const std::string name = number.substr(open, number.find(']') - open);
  std::string result = "by_" + name;
  if (known_.insert(result).second) {
    const device::Divisor by = device::divisor_of(static_cast<uint32_t>(value));
    const std::string multiplier = arguments_.number(name + "_multiplier", by.multiplier);
    const std::string shift = arguments_.number(name + "_shift", by.shift);
    divisors_ += "    const auto " + result + " = column_divisor<kVector>({" + number + ", " +
                 multiplier + ", " + shift + "});\n";
  }
  return result;
}

}  // namespace coda::hopper
