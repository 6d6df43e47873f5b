// SPDX-License-Identifier: Apache-2.0
// Fixed-width integers and the few value types that every device file shares. The device code
// includes no standard header, because NVRTC would parse thousands of lines for two typedefs;
// everything here also compiles on the host, where the index mathematics is tested.
#pragma once

namespace coda::device {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8);

constexpr u32 ceil_div(u32 a, u32 b) { return (a + b - 1) / b; }
constexpr u32 round_up(u32 a, u32 multiple) { return ceil_div(a, multiple) * multiple; }
constexpr u32 smaller(u32 a, u32 b) { return a < b ? a : b; }
constexpr u32 larger(u32 a, u32 b) { return a > b ? a : b; }

// The type of an element in memory. Tensor cores multiply only some of these types (is_operand,
// device/config.cuh). The host uses the same names (src/gpu/target/element.h).
enum class Element { f32, bf16, f16, f64, i32, e4m3, e5m2, u8 };

constexpr u32 bytes_of(Element element) {
  switch (element) {
    case Element::f64: return 8;
    case Element::f32:
    case Element::i32: return 4;
    case Element::bf16:
    case Element::f16: return 2;
    case Element::e4m3:
    case Element::e5m2:
    case Element::u8: return 1;
  }
  return 0;
}
// Two fit into a register, and only these can be in a staging ring.
constexpr bool is_16_bits(Element element) { return bytes_of(element) == 2; }

// A TMA descriptor as the driver encodes it; opaque here.
struct alignas(64) TensorMap {
  u8 bytes[128];
};

struct TileCoord {
  u32 m = 0;  // first row of the tile
  u32 n = 0;  // first column of the tile

  constexpr bool operator==(const TileCoord&) const = default;
};

}  // namespace coda::device
