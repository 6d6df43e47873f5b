// SPDX-License-Identifier: Apache-2.0
// Analyses one tile space for a GEMM kernel: which GEMMs fill its accumulators, how each tensor is
// moved, and what is reduced. The analysis depends only on the program's structure and on
// alignment; it happens before any text is written or tile size chosen.
// Invariant: two sizes with equal SpaceAnalysis give the same kernel text.
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

// How a tile of a tensor moves between memory and a thread's registers.
enum class Movement : uint8_t {
  staged,  // in 64x64 planes by TMA through the ring: 16-bit tensors with TMA-addressable rows
  direct,  // by the threads themselves, two neighbouring columns at a time
  bytes,   // 8-bit values: through a byte plane of the same ring
  added,   // fp32 accumulation: an atomic add in memory, without a load
  nothing  // no movement: an `added` load, or a load that another load covers
};

// A load_tile or store_tile.
struct TileMove {
  int step = -1;
  Movement movement = Movement::direct;
  bool is_wide = false;
  bool is_permuted = false;  // staged and wide: its two planes are 128 columns in memory
  bool is_repeated =
      false;       // direct: a table of 64 columns, the same for all sub-tiles of the same rows
  int plane = -1;  // staged, or a load of bytes: its first plane

  friend bool operator==(const TileMove&, const TileMove&) = default;
};

// A value stored in 8 bits through byte planes (one, or two if it is wide): along rows, along
// columns, or both.
struct ByteMove {
  int from = -1;     // the step of the value
  int rows = -1;     // store_tile; -1: none
  int columns = -1;  // store_transposed
  bool is_wide = false;
  int plane = 0;  // the first plane

  friend bool operator==(const ByteMove&, const ByteMove&) = default;
};

// One accumulator per base column: a narrow GEMM, or one member of a wide GEMM.
struct Part {
  int gemm = -1;    // step
  int member = -1;  // -1: narrow

  friend bool operator==(const Part&, const Part&) = default;
};

struct SpaceAnalysis {
  int space = 0;  // index in the TileMap
  std::vector<Part> parts;
  uint32_t natural_half = 0;  // not 0: the wide GEMM is accumulated in the order of memory
  int segments = 1;
  device::OperandLayout layout = device::OperandLayout::tn;
  device::Element element = device::Element::bf16;  // as in GemmConfig, also the next two
  device::Element element_b = device::Element::bf16;
  bool promotes = false;
  bool has_scales = false;

  // Per step of the program: the first step of the space that computes the same value by the same
  // load or GEMM; other steps have their own index.
  std::vector<int> representative;
  std::vector<TileMove> loads;  // without duplicates
  std::vector<TileMove> stores;
  std::vector<int> row_partials;     // steps
  std::vector<int> column_partials;  // steps
  uint32_t column_fields = 0;   // fp32 numbers per column that column partials pass between warps
  std::vector<int> selections;  // store_vector steps of select_column values
  std::vector<ByteMove> bytes;
  std::vector<int> maxima;         // abs_max_into steps
  bool ragged_columns = false;     // the number of base columns is not a multiple of 64
  uint32_t row_values = 0;         // number of per-row vectors that are loaded
  bool has_long_function = false;  // an elementwise function of about forty instructions
  // Registers per thread for per-column vectors. They are loaded for a whole sub-tile before its
  // planes. If that takes too many registers, fp32 vectors are loaded for one fragment at a time.
  uint32_t column_registers = 0;
  bool loads_columns_by_fragment = false;
  // All direct loads of a fragment are issued before the first use, unless that takes too many
  // registers.
  uint32_t direct_registers = 0;
  bool loads_early = true;
  bool loads_ahead = true;       // and they are issued one fragment ahead, into separate registers
  uint32_t repeated_planes = 0;  // of the direct planes, those with is_repeated

  // Values with one column per group of columns (a head). Their sums are computed before the
  // sub-tiles, in walks over `span` base columns, which hold whole groups.
  struct Groups {
    uint32_t span = 0;                  // 0: no groups
    uint32_t walks = 0;                 // a sum that depends on another sum needs a later walk
    std::map<int, TileLayout> layouts;  // of the steps with such values
    std::map<int, uint32_t> known;      // number of walks after which a value is known
    std::vector<int> loads;             // tile loads that walks read
    uint32_t registers = 0;             // per thread: for walks, and for what fragments read
  };
  Groups groups;

  // with_products: `tile` with layout, element type and summation of the GEMMs. multiplies_as:
  // whether another space has the same ones.
  device::GemmConfig with_products(device::GemmConfig tile) const;
  bool multiplies_as(const SpaceAnalysis& other) const;
  const TileMove* find_load(int step) const;
  device::EpilogueTraits traits() const;
  const ByteMove* find_bytes(int effect) const;
  // Whether something needs the 64 columns of a whole sub-tile: a reduction, a per-column vector,
  // or direct moves. If not, a tile may be processed in sub-tiles of 32 columns.
  bool needs_whole_sub_tiles() const;
};

struct SpaceLimits {
  // The most planes staged in each direction; further tensors are moved directly.
  int planes = 0;
};

std::variant<SpaceAnalysis, Refusal> analyse_space(const ProgramSizes& sizes,
                                                   const program::TileMap& map, int space,
                                                   const SpaceLimits& limits);

// A few lines for people and for tests.
std::string text(const SpaceAnalysis& analysis, const Program& program);

}  // namespace coda::gpu
