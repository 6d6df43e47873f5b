// SPDX-License-Identifier: Apache-2.0
// Compiles operations of a tile into a chain: in an order in which most of them find an operand in
// the accumulator, with a value kept in the first-level cache only if something else reads it too.
// The order of a load and a store is that of the program, since they may share memory.
#pragma once

#include <vector>

#include "cpu/chain_machine.h"
#include "cpu/tile_program.h"

namespace coda::cpu {

enum class StreamKind : uint8_t {
  memory,       // a tensor's rows
  ahead,        // the same, some rows further down
  offsets,      // of each vector of each chunk, in a row of a tensor
  neighbours,   // the same of a plane: its vectors lie one behind another
  place,        // of an operand: a plane or a vector
  slot,         // one chunk, kept for the chain
  row_partial,  // one float for each span of 64 columns
  state,        // of a column partial
};

struct StreamForm {
  StreamKind kind = StreamKind::memory;
  Place place = {};
  int index = -1;         // memory, ahead, row_partial: the tensor; slot, state: its number
  int index_tensor = -1;  // memory, ahead: of its rows
  ColumnMap map = {};     // offsets
  int plane = 0;          // offsets
  friend bool operator==(const StreamForm&, const StreamForm&) = default;
};

struct Chain {
  ChainMachine machine;
  std::vector<Instruction> whole;   // for whole chunks
  std::vector<Instruction> ragged;  // for the rest of a row
  std::vector<StreamForm> streams;
  std::vector<TileOp> column_sums;  // into whose states it adds
  int slots = 0;
  // As TileOp has them.
  bool is_narrow = false;
  int64_t span = 1;
  int64_t groups = 0;
};

// Whether the operation can be a part of a chain; `cols` are the base columns of the tile space.
bool fits_chain(const TileOp& op, int64_t cols, const ChainMachine& machine);

// The operations, of one width and in the program's order, read planes that are complete or made by
// operations before them. What others read is written to strip planes.
Chain compile_chain(const std::vector<TileOp>& ops, int64_t cols, const ChainMachine& machine);

// What moves between memory and tiles; anything else that writes memory orders as a store does.
bool reads_memory(const TileOp& op);
bool writes_memory(const TileOp& op);

}  // namespace coda::cpu
