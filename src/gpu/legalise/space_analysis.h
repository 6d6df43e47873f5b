// SPDX-License-Identifier: Apache-2.0
// What one tile space of a program is to a GEMM kernel: which products fill its accumulators, how
// each tensor is moved, and what is reduced. Decided once, from the program's structure and from
// alignment, before any text is written or any tile size chosen.
// Invariant: two sizes that give the same SpaceAnalysis give the same kernel text.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "device/layout/space.cuh"
#include "gpu/legalise/program_sizes.h"
#include "gpu/legalise/refusal.h"
#include "gpu/legalise/tile_layout.h"
#include "program/tile_map.h"

namespace coda::gpu {

// How a tile of a tensor gets between memory and a thread's registers.
enum class Movement : uint8_t {
  staged,  // in 64x64 planes by TMA through the ring: 16-bit tensors whose rows TMA can address
  direct,  // read or written by the threads themselves, two neighbouring columns at a time
  bytes,   // of 8 bits, by way of a byte plane, in the same ring
  added,   // fp32 accumulation: added to memory at the memory, never loaded
  nothing  // a load whose value the memory adds, or that another load makes
};

// A load_tile or store_tile.
struct TileMove {
  int step = -1;
  Movement movement = Movement::direct;
  bool is_wide = false;
  bool is_permuted = false;  // staged and wide: its two planes are 128 natural columns
  bool is_repeated =
      false;       // direct: a table of 64 columns, one for all sub-tiles of the same rows
  int plane = -1;  // of a load of bytes, or staged: the first of its planes

  friend bool operator==(const TileMove&, const TileMove&) = default;
};

// A value that leaves in 8 bits by way of byte planes, one or, if it is wide, two: along rows,
// along columns, or both.
struct ByteMove {
  int from = -1;     // the value's step
  int rows = -1;     // store_tile; -1: none
  int columns = -1;  // store_transposed
  bool is_wide = false;
  int plane = 0;  // the first

  friend bool operator==(const ByteMove&, const ByteMove&) = default;
};

// One accumulator of each base column: a narrow product, or a member of a wide one.
struct Part {
  int gemm = -1;    // step
  int member = -1;  // -1: narrow

  friend bool operator==(const Part&, const Part&) = default;
};

struct SpaceAnalysis {
  int space = 0;  // in the TileMap
  std::vector<Part> parts;
  uint32_t natural_half = 0;  // not 0: the wide product is accumulated in natural order
  int segments = 1;
  device::OperandLayout layout = device::OperandLayout::tn;
  device::Element element = device::Element::bf16;  // GemmConfig's, as the next two
  device::Element element_b = device::Element::bf16;
  bool promotes = false;
  bool has_scales = false;

  // Per step of the program: the first step of the space that makes the same value by the same load
  // or product; itself for others.
  std::vector<int> representative;
  std::vector<TileMove> loads;  // one for each distinct load
  std::vector<TileMove> stores;
  std::vector<int> row_partials;     // steps
  std::vector<int> column_partials;  // steps
  uint32_t column_fields = 0;        // floats a column that these pass between warps
  std::vector<int> selections;       // store_vector steps of selected columns
  std::vector<ByteMove> bytes;
  std::vector<int> maxima;         // abs_max_into steps
  bool ragged_columns = false;     // base columns are no multiple of 64
  uint32_t row_values = 0;         // per-row vectors that are loaded
  bool has_long_function = false;  // of an element: some forty instructions
  // Registers of a thread for per-column vectors. They are loaded for a whole sub-tile, ahead of
  // its planes; but those in fp32 for one fragment at a time if they would take too many.
  uint32_t column_registers = 0;
  bool loads_columns_by_fragment = false;
  // Direct loads of a fragment are all issued before any is used, unless they would take too many.
  uint32_t direct_registers = 0;
  bool loads_early = true;
  bool loads_ahead = true;       // and a fragment before they are used, into registers of their own
  uint32_t repeated_planes = 0;  // of them: is_repeated

  // Values with one column for each group of columns (a head): their sums are made ahead of the
  // sub-tiles, in walks over `group_span` base columns, which hold groups whole.
  struct Groups {
    uint32_t span = 0;   // 0: there are none
    uint32_t walks = 0;  // a sum that is made of another needs a walk behind that one's
    std::map<int, TileLayout> layouts;  // of their steps
    std::map<int, uint32_t> known;      // after how many walks
    std::vector<int> loads;             // loads of tiles that walks read
    uint32_t registers = 0;             // of a thread: walks, and what fragments read
  };
  Groups groups;

  // A tile with what the products say: layout, elements, how they are summed; and whether those of
  // another space say the same.
  device::GemmConfig with_products(device::GemmConfig tile) const;
  bool multiplies_as(const SpaceAnalysis& other) const;
  const TileMove* find_load(int step) const;
  device::EpilogueTraits traits() const;
  const ByteMove* find_bytes(int effect) const;
  // Whether something spans the 64 columns of a sub-tile: a reduction, a per-column vector, or
  // what threads move themselves. If not, a tile may be walked in sub-tiles of 32.
  bool needs_whole_sub_tiles() const;
};

struct SpaceLimits {
  // The most planes staged in each direction; threads move further tensors directly.
  int planes = 0;
};

std::variant<SpaceAnalysis, Refusal> analyse_space(const ProgramSizes& sizes,
                                                   const program::TileMap& map, int space,
                                                   const SpaceLimits& limits);

// A few lines for people, and for tests.
std::string text(const SpaceAnalysis& analysis, const Program& program);

}  // namespace coda::gpu
