// SPDX-License-Identifier: Apache-2.0
// A set of code points, stored as the boundaries of its ranges.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace coda::tokenizer {

inline constexpr uint32_t kCodePoints = 0x110000;

class PointSet {
 public:
  PointSet() = default;
  // `edges`: the first code point of each range and the one after its last, ascending. If the set
  // contains U+10FFFF, the last range has no end.
  explicit PointSet(std::vector<uint32_t> edges) : edges_(std::move(edges)) {}
  static PointSet range(uint32_t first, uint32_t last);
  static PointSet point(uint32_t point) { return range(point, point); }

  std::span<const uint32_t> edges() const { return edges_; }
  bool empty() const { return edges_.empty(); }
  bool contains(uint32_t point) const;

  PointSet complement() const;
  PointSet operator|(const PointSet& other) const;
  PointSet operator&(const PointSet& other) const;
  bool operator==(const PointSet&) const = default;
  auto operator<=>(const PointSet&) const = default;

 private:
  std::vector<uint32_t> edges_;
};

}  // namespace coda::tokenizer
