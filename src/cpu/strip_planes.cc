// SPDX-License-Identifier: Apache-2.0
// A strip plane is free after the last operation that uses its value. Fewer planes allow strips
// with more rows.
#include <algorithm>
#include <span>
#include <vector>

#include "cpu/tile_program.h"

namespace coda::cpu {
namespace {

// Whether each element of the result depends only on the operands' elements at the same place, so
// that the result may overwrite an operand.
bool is_elementwise(const TileOp& op) {
  return op.kind == TileOpKind::elementwise || op.kind == TileOpKind::sum ||
         op.kind == TileOpKind::round;
}

template <class Function>
void for_strip_places(std::span<Place> places, const Function& f) {
  for (Place& p : places)
    if (p.kind == PlaceKind::strip) f(p);
}

}  // namespace

int share_strip_planes(TileProgram& program) {
  struct Value {
    size_t last_use = 0;  // index of an operation
    int plane = -1;
  };
  std::vector<Value> values;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const auto use = [&](const Place& p) {
      values.resize(std::max<size_t>(values.size(), p.index + 1));
      values[p.index].last_use = i;
    };
    for_strip_places(program.ops[i].in, use);
    for_strip_places(program.ops[i].out, use);
  }
  int planes = 0;
  std::vector<int> free;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    TileOp& op = program.ops[i];
    // Replaces the number of the value by that of its plane. An operand may occur twice.
    const auto settle = [&](Place& p, std::vector<int>& freed) {
      const Value& value = values[p.index];
      p.index = value.plane;
      const bool is_known = std::find(freed.begin(), freed.end(), value.plane) != freed.end();
      if (value.last_use == i && !is_known) freed.push_back(value.plane);
    };
    std::vector<int> read_last;
    std::vector<int> never_read;
    for_strip_places(op.in, [&](Place& p) { settle(p, read_last); });
    const auto release = [&](const std::vector<int>& freed) {
      free.insert(free.end(), freed.begin(), freed.end());
    };
    if (is_elementwise(op)) release(read_last);
    for_strip_places(op.out, [&](Place& p) {
      if (free.empty()) free.push_back(planes++);
      values[p.index].plane = free.back();
      free.pop_back();
      settle(p, never_read);
    });
    if (!is_elementwise(op)) release(read_last);
    release(never_read);
  }
  return planes;
}

}  // namespace coda::cpu
