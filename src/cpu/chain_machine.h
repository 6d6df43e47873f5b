// SPDX-License-Identifier: Apache-2.0
// Elementwise code whose values stay in vector registers. A chain is a list of instructions for one
// row of a chunk of columns, eight vectors wide. All handlers have one signature: those eight
// vectors, the accumulator, come and go in registers, and each handler ends by calling the next, a
// jump. Operands other than the accumulator are in first-level cache or in memory.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/rounding.h"
#include "coda/dtype.h"
#include "coda/elementwise.h"
#include "cpu/tile_program.h"

namespace coda::cpu {

inline constexpr int kChunkVectors = 8;
inline constexpr int64_t kWidestChunk = 128;  // columns, with the widest vectors
// Floats that chains may read and write past the end of planes and vectors.
inline constexpr int64_t kVectorPad = kWidestChunk;

// What an instruction does with the accumulator `v`; a, b and c are its streams.
enum class Action : uint8_t {
  end,
  fetch,           // v = a, an fp32 plane or a constant
  keep,            // a = v, all of the chunk
  load,            // v = a in memory, at the column offsets b; asks for c, rows ahead of a
  store,           // a in memory, at the column offsets b, = v; likewise
  elementwise,     // v = op(operands): v is operand `which`, a and b the others in order
  sum,             // v = arithmetic(operands), likewise
  round,           // v = v as dtype holds it
  row_sum,         // a[span] = the sum of v over each span of 64 columns
  row_sum_of_two,  // likewise of b, then of v
  column_sum,      // a += v
};

// How the columns of a chunk lie in memory.
enum class Columns : uint8_t {
  neighbours,  // all of the chunk, one behind another from the first offset on
  twos,        // two by two, vectors lie behind one another and are whole
  ragged,      // the columns of each vector are neighbours; the last may have fewer
};

// An instruction's handler is chosen by this.
struct HandlerKey {
  Action action = Action::end;
  Elementwise op = Elementwise::add;
  Arithmetic arithmetic = Arithmetic::add;
  DType dtype = DType::f32;  // load, store, round
  int which = 0;             // elementwise, sum: which operand v is
  // elementwise, sum, fetch: a, b have one value for a row. Others are fp32 planes, of which all
  // columns of the chunk may be read.
  std::array<bool, 2> is_constant = {};
  bool is_ragged = false;                 // not all columns of the chunk are there
  Columns columns = Columns::neighbours;  // load, store
};

using Handler = void (*)();  // of a signature that only one instruction set's code knows

struct Instruction {
  Handler handler = nullptr;
  uint16_t a = 0;
  uint16_t b = 0;
  uint16_t c = 0;
};

// Where the streams of a chain are while it runs over rows: addresses and distances in bytes.
struct ChainStreams {
  struct Gather {
    size_t stream = 0;
    const int32_t* rows = nullptr;  // row i of the stream is row rows[i] behind its first
    int64_t row_bytes = 0;
  };

  explicit ChainStreams(size_t count)
      : first(round_up(count, 8)),  // whole vectors of them
        row_bytes(first.size()),
        chunk_bytes(first.size()),
        row(first.size()),
        at(first.size()) {}

  std::vector<int64_t> first;        // at the first row and chunk
  std::vector<int64_t> row_bytes;    // to the next row; 0: of a gathered stream too
  std::vector<int64_t> chunk_bytes;  // to the next chunk of a row
  std::vector<Gather> gathers;
  std::vector<int64_t> row;  // while running: at the row
  std::vector<int64_t> at;   // and at a later chunk of it
};

inline int64_t address(const void* p) { return std::bit_cast<int64_t>(p); }

// The code for one instruction set.
struct ChainMachine {
  int64_t columns = 0;  // of a chunk
  Handler (*handler)(const HandlerKey& key) = nullptr;
  // Runs `whole` on whole chunks and `ragged` on the last one of each row, if it is not whole.
  void (*run)(const Instruction* whole, const Instruction* ragged, ChainStreams& streams,
              int64_t rows, int64_t cols) = nullptr;

  bool has_row_sums() const { return columns % kPartialSpan == 0; }
};

// That of this processor's best instruction set.
ChainMachine chain_machine();

}  // namespace coda::cpu
