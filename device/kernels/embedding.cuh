// SPDX-License-Identifier: Apache-2.0
// Embedding lookup, and its gradient: each row of the table's gradient is the sum of the gradients
// of its tokens. The order of additions depends only on the tokens, so results are bitwise
// repeatable without scratch memory. A thread has eight neighbouring columns.
#pragma once

#include "device/ptx/lanes.cuh"
#include "device/tiles/vector_access.cuh"

namespace coda::device {

struct MatrixRows {
  u64 data;
  u32 stride;  // elements between rows
};

// Whether rows of this many columns consist of whole vectors.
template <Element kStored>
constexpr bool is_vector(const MatrixRows& rows, u32 columns) {
  const u64 row_bytes = static_cast<u64>(rows.stride) * bytes_of(kStored);
  return (rows.data | row_bytes | columns * 2) % 16 == 0;
}

inline constexpr float kNotANumber = __builtin_bit_cast(float, 0x7fffffffu);
inline constexpr u32 kEmbeddingThreads = 256;
inline constexpr u32 kEmbeddingPieces = 4;  // per thread

// The source of row numbers: i32 token ids, or fp32 numbers that a program computed, where -1 means
// no row.
enum class RowNumbers : u32 { ids, computed };
inline constexpr u32 kNoRow = ~0u;

template <RowNumbers kNumbers>
__device__ __forceinline__ u32 row_number(u32 stored) {
  if constexpr (kNumbers == RowNumbers::ids) return stored;
  return static_cast<u32>(static_cast<int>(__builtin_bit_cast(float, stored)));
}

template <Element kTable, Element kOut, RowNumbers kNumbers, bool kVector>
__device__ __forceinline__ void copy_rows(u32 columns, u32 table_rows, u32 tokens,
                                          const MatrixRows& table, u64 ids, const MatrixRows& out) {
  const u32 pieces = ceil_div(columns, kThreadColumns);  // per row
  const u32 first = block_index() * (kEmbeddingThreads * kEmbeddingPieces) + thread_index();
  u32 token[kEmbeddingPieces];
  u32 column[kEmbeddingPieces];
  u32 id[kEmbeddingPieces];
  typename LoadedEight<kVector, kTable>::Type loaded[kEmbeddingPieces];
#pragma unroll
  for (u32 i = 0; i < kEmbeddingPieces; ++i) {
    const u32 piece = first + i * kEmbeddingThreads;
    token[i] = piece / pieces;
    column[i] = piece % pieces * kThreadColumns;
    id[i] = token[i] < tokens ? row_number<kNumbers>(load_index(ids, token[i])) : table_rows;
  }
#pragma unroll
  for (u32 i = 0; i < kEmbeddingPieces; ++i) {
    const u32 valid = id[i] < table_rows ? valid_columns(column[i], columns) : 0;
    loaded[i] = load_eight<kTable, Access::cached, kVector>(
        table.data, row_start(id[i], table.stride), valid, [&](u32 j) { return column[i] + j; });
  }
#pragma unroll
  for (u32 i = 0; i < kEmbeddingPieces; ++i) {
    const u32 valid = token[i] < tokens ? valid_columns(column[i], columns) : 0;
    Elements<kThreadColumns> x = values(loaded[i]);
    const bool is_empty = kNumbers == RowNumbers::computed && id[i] == kNoRow;
    const float otherwise = is_empty ? 0.0f : kNotANumber;
#pragma unroll
    for (float& value : x.value) value = id[i] < table_rows ? value : otherwise;
    store_eight<kOut, kVector>(
        out.data, row_start(token[i], out.stride), valid, [&](u32 j) { return column[i] + j; }, x);
  }
}

// A token outside the table gets NaN, because a kernel cannot throw. "No row" gives zeros.
template <Element kTable, Element kOut, RowNumbers kNumbers = RowNumbers::ids>
__device__ __forceinline__ void embedding_forward(u32 columns, u32 table_rows, u32 tokens,
                                                  MatrixRows table, u64 ids, MatrixRows out) {
  if (is_vector<kTable>(table, columns) && is_vector<kOut>(out, columns)) {
    copy_rows<kTable, kOut, kNumbers, true>(columns, table_rows, tokens, table, ids, out);
  } else {
    copy_rows<kTable, kOut, kNumbers, false>(columns, table_rows, tokens, table, ids, out);
  }
}

// The gradient's rows are distributed cyclically: of `groups` blocks for the same 256 columns,
// block g has rows g, g + groups and so on, because frequent tokens are neighbours in the tables of
// real texts. A block scans all tokens once, lists those of its rows, and sorts the list by row.
// Its warps ("teams") sum parts of the sorted list of equal cost, wherever rows end. So one row
// with many tokens has as many loads in flight as many rows with one token. A row in several parts
// is added up by the team that has its first token. If the list would be too long, the block
// processes fewer rows at a time, and a single row in pieces of 8192 tokens.
//
// All blocks are limited by memory, which favours the block with the most requests. So the more
// tokens a block has, the more of its teams sum, and blocks with frequent tokens end together with
// the others. Rows without tokens are written when memory is less busy: while one warp sorts the
// list, and after the sums.
inline constexpr u32 kGradientThreads = 512;
inline constexpr u32 kTeamThreads = 32;
inline constexpr u32 kTeams = kGradientThreads / kTeamThreads;
inline constexpr u32 kGradientColumns = kTeamThreads * kThreadColumns;
// Teams that sum in a block with the average number of tokens. With fewer, loads do not saturate
// memory.
inline constexpr u32 kTeamsOfMean = 7;
inline constexpr u32 kMostMatches = 8192;
inline constexpr u32 kMostRows = 16384;      // per block and iteration
inline constexpr u32 kBeginsRow = 1u << 31;  // flag in a match

struct TokenMatches {
  // A match is (index of its row among the current rows) << token_bits | token.
  union {
    u32 listed[kMostMatches];
    // Each team's partial sum of a row that begins in another team's part.
    float part[kThreadColumns][kGradientThreads];
  };
  // The first match of each row has kBeginsRow, unless there is only one row. Padded with matches
  // of no row to a multiple of four.
  alignas(16) u32 sorted[kMostMatches];
  u16 place[kMostMatches];  // rank of a listed match among those of its row
  u32 part_begins[kTeams];  // index in `sorted`; a multiple of four
  u32 part_row[kTeams];     // row number of `part`; kNoRow if unused
  u32 counted[kTeams];      // by each warp
  u32 next_empty;           // the first row that no warp has filled or found to have tokens
  // 0 for a row without tokens; else one more than the number of its matches ranked so far, later
  // one more than its first index in `sorted`.
  u16 row_state[kMostRows];
  u32 named[kMostRows / 32];                   // a bit for each row: a token names it
  float single[kThreadColumns][kTeamThreads];  // the partial sum of a single row
};

// The rows group + (first + i) * groups of the table, for i from 0 to count - 1.
struct DealtRows {
  u32 groups;
  u32 group;
  u32 reciprocal;  // 2^32 / groups, rounded up: the division is exact for rows of the table, never
                   // too small
  u32 first;
  u32 count;
  u32 token_bits;

  __device__ __forceinline__ u32 row(u32 i) const { return group + (first + i) * groups; }
  __device__ __forceinline__ u32 turn(u32 row) const {
    return static_cast<u32>(static_cast<u64>(row) * reciprocal >> 32);
  }
  __device__ __forceinline__ u32 number(u32 match) const {
    return (match & ~kBeginsRow) >> token_bits;
  }
  __device__ __forceinline__ u32 token(u32 match) const { return match & ((1u << token_bits) - 1); }
};

// The rows of four tokens; kNoRow where there is no token.
template <RowNumbers kNumbers>
__device__ __forceinline__ void load_ids(u32 (&id)[4], u64 ids, u32 token, u32 end,
                                         bool is_vector) {
#pragma unroll
  for (u32 i = 0; i < 4; ++i) id[i] = kNoRow;
  if (is_vector) {
    if (token >= end) return;
    load_piece<Access::cached>(id, ids + static_cast<u64>(token) * 4);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) id[i] = row_number<kNumbers>(id[i]);
  } else {
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      if (token + i < end) id[i] = row_number<kNumbers>(load_index(ids, token + i));
    }
  }
}

// A prefix sum over all threads: the sum before this thread, and the total. Threads must
// synchronise before the next call.
struct CountedInOrder {
  u32 before;
  u32 all;
};
__device__ __forceinline__ CountedInOrder count_in_order(TokenMatches& matches, u32 mine) {
  const u32 warp = thread_index() / 32;
  u32 before = sum_of_lanes_before(mine);
  if (thread_index() % 32 == 31) matches.counted[warp] = before + mine;
  synchronize_block();
  u32 all = 0;
#pragma unroll
  for (u32 w = 0; w < kTeams; ++w) {
    if (w == warp) before += all;
    all += matches.counted[w];
  }
  return {before, all};
}

// Lists the tokens from begin to end that name one of the rows, and returns their number; beyond
// kMostMatches the list is incomplete. The order is that of the threads, so it is always the same.
// Numbers outside the table are never listed, because their index is too large.
template <RowNumbers kNumbers>
__device__ __forceinline__ u32 list_matches(TokenMatches& matches, u64 ids, const DealtRows& rows,
                                            u32 begin, u32 end) {
  constexpr u32 kLoads = 8;  // loads in flight per thread
  constexpr u32 kStep = kGradientThreads * 4;
  const bool is_vector = ids % 16 == 0 && (begin | end) % 4 == 0;
  u32 listed = 0;
  for (u32 batch = begin; batch < end; batch += kLoads * kStep) {
    const u32 base = batch + thread_index() * 4;
    u32 id[kLoads][4];
#pragma unroll
    for (u32 i = 0; i < kLoads; ++i) {
      load_ids<kNumbers>(id[i], ids, base + i * kStep, end, is_vector);
    }
    if (batch == begin) {
      for (u32 i = thread_index(); i < rows.count; i += kGradientThreads) matches.row_state[i] = 0;
    }
    u32 found = 0;  // one bit for each token
#pragma unroll
    for (u32 i = 0; i < kLoads * 4; ++i) {
      const u32 row = id[i / 4][i % 4];
      const u32 turn = rows.turn(row);
      const bool is_mine = row - turn * rows.groups == rows.group;
      if (is_mine && turn - rows.first < rows.count) found |= 1u << i;
    }
    const CountedInOrder counted = count_in_order(matches, count_bits(found));
    u32 place = listed + counted.before;
    listed += counted.all;
    for (; found != 0; found &= found - 1) {  // few tokens, so their ids are loaded again
      const u32 i = count_bits((found - 1) & ~found);
      const u32 token = base + i / 4 * kStep + i % 4;
      const u32 row = row_number<kNumbers>(load_index(ids, token));
      const u32 number = rows.turn(row) - rows.first;
      matches.row_state[number] = 1;
      if (place < kMostMatches) matches.listed[place] = number << rows.token_bits | token;
      ++place;
    }
    synchronize_block();
  }
  return listed;
}

// Until add_places, `place` is the rank of a match among the matches of its row within the same 32
// entries, plus kMatches times their number.
inline constexpr u32 kMatches = 256;

// Adds to the ranks, 32 entries at a time, the number of earlier matches of the row. Runs in one
// warp.
__device__ __forceinline__ void add_places(TokenMatches& matches, const DealtRows& rows,
                                           u32 count) {
  const u32 lane = thread_index() % 32;
  const u32 padded = ceil_div(count, 32) * 32;
  constexpr u32 kAhead = 4;  // loaded ahead
  for (u32 base = lane; base < padded; base += kAhead * 32) {
    u32 row[kAhead];
    u32 place[kAhead];
#pragma unroll
    for (u32 k = 0; k < kAhead; ++k) {
      const u32 i = base + k * 32;
      row[k] = i < count ? rows.number(matches.listed[i]) : 0;
      place[k] = i < count ? matches.place[i] : 1;
    }
#pragma unroll
    for (u32 k = 0; k < kAhead; ++k) {
      const u32 state = matches.row_state[row[k]];
      synchronize_warp();
      const u32 i = base + k * 32;
      if (i < count) matches.place[i] = static_cast<u16>(state - 1 + place[k] % kMatches);
      if (place[k] % kMatches == 0) {
        matches.row_state[row[k]] = static_cast<u16>(state + place[k] / kMatches);
      }
      synchronize_warp();
    }
  }
}

// Finds where rows begin in `sorted`, in the order of their first matches, and where to split it
// into parts of equal cost for the teams. Threads must synchronise before reading the result.
__device__ __forceinline__ void begin_rows_and_parts(TokenMatches& matches, const DealtRows& rows,
                                                     u32 count, u32 teams) {
  const u32 each = ceil_div(count, kGradientThreads);
  const u32 first = thread_index() * each;
  const u32 behind = smaller(first + each, count);
  constexpr u32 kRow = 1u << 16;
  u32 mine = 0;  // rows whose first match is this thread's, * kRow + number of their matches
  for (u32 i = first; i < behind; ++i) {
    if (matches.place[i] == 0) mine += kRow + matches.row_state[rows.number(matches.listed[i])] - 1;
  }
  const CountedInOrder counted = count_in_order(matches, mine);
  // Storing a row costs about half as much as loading a match.
  const auto cost = [](u32 numbers) { return numbers / kRow + numbers % kRow * 2; };
  u32 before = counted.before;
  for (u32 i = first; i < behind; ++i) {
    if (matches.place[i] != 0) continue;
    u16& state = matches.row_state[rows.number(matches.listed[i])];
    const u32 matches_of_row = state - 1;
    const u32 next = before % kRow;
    state = static_cast<u16>(next + 1);
    const u32 cost_before = cost(before);
    before += kRow + matches_of_row;
    u32 part = ceil_div(cost_before * teams, cost(counted.all));
    for (; part * cost(counted.all) < cost(before) * teams; ++part) {
      const u32 cost_of_row = (part * cost(counted.all) / teams - cost_before) / 2;
      matches.part_begins[part] = (next + smaller(cost_of_row, matches_of_row)) / 4 * 4;
    }
  }
}

// Sorts matches: rows in the order of their first matches, the matches of a row in list order.
// While one warp adds ranks, the other warps call meanwhile(), which takes numbers from next_empty
// until it gets at least kStopped.
inline constexpr u32 kStopped = 1u << 30;
template <class Meanwhile>
__device__ __forceinline__ void sort_matches(TokenMatches& matches, const DealtRows& rows,
                                             u32 count, bool is_single, u32 teams,
                                             const Meanwhile& meanwhile) {
  const u32 lane = thread_index() % 32;
  const u32 padded = ceil_div(count, 32) * 32;
  const auto row_of = [&](u32 i) { return rows.number(matches.listed[i]); };
  for (u32 i = thread_index(); i < padded; i += kGradientThreads) {
    const u32 same = lanes_with_same(i < count ? row_of(i) : kNoRow);
    const u32 place = count_bits(same & ((1u << lane) - 1));
    matches.place[i] = static_cast<u16>(place + count_bits(same) * kMatches);
  }
  for (u32 i = thread_index(); i < ceil_div(rows.count, 32) * 32; i += kGradientThreads) {
    const u32 named = lanes_that(i < rows.count && matches.row_state[i] != 0);
    if (lane == 0) matches.named[i / 32] = named;
  }
  if (thread_index() == 0) matches.next_empty = 0;
  synchronize_block();
  u32 next_empty = 0;
  if (thread_index() < 32) {
    add_places(matches, rows, count);
    next_empty = take_numbers(matches.next_empty, kStopped);
  } else {
    meanwhile();
  }
  synchronize_block();
  if (thread_index() == 0) matches.next_empty = next_empty;
  begin_rows_and_parts(matches, rows, count, teams);
  synchronize_block();
  for (u32 i = thread_index(); i < count; i += kGradientThreads) {
    const u32 place = matches.place[i];
    const u32 begins = place == 0 && !is_single ? kBeginsRow : 0;
    matches.sorted[matches.row_state[row_of(i)] - 1 + place] = matches.listed[i] | begins;
  }
  if (thread_index() < ceil_div(count, 4) * 4 - count) {
    matches.sorted[count + thread_index()] = ~0u << rows.token_bits;
  }
  synchronize_block();
}

// A thread's columns of a matrix: address in row 0, and bytes between rows.
struct ThreadRows {
  u64 data;
  u32 pitch;
};
template <Element kStored>
__device__ __forceinline__ ThreadRows thread_rows(const MatrixRows& rows, u32 column) {
  return {rows.data + static_cast<u64>(column) * bytes_of(kStored),
          rows.stride * bytes_of(kStored)};
}

// A thread's columns of the gradient.
template <Element kIn, Element kAdded, Element kOut, bool kAdds, bool kVector>
struct GradientRows {
  // In flight: rows of tokens, and rows without tokens.
  static constexpr u32 kWidest = kAdds ? larger(bytes_of(kIn), bytes_of(kAdded)) : bytes_of(kIn);
  static constexpr u32 kTokens = kVector ? (kAdds ? 16 : 32) / kWidest : 4;
  static constexpr u32 kEmptyRows = 4;
  ThreadRows dx;
  ThreadRows added;
  ThreadRows out;
  u32 valid;   // number of columns; threads after the last column load other columns and store
               // nothing
  bool fills;  // whether rows without tokens are written

  using Columns = Elements<kThreadColumns>;
  using Received = typename LoadedEight<kVector, kIn>::Type;
  using Before = typename LoadedEight<kVector, kAdded>::Type;

  static __device__ __forceinline__ u32 team() { return thread_index() / kTeamThreads; }

  __device__ __forceinline__ Received received(u32 token) const {
    return load_eight<kIn, Access::streamed, kVector>(element_of_row(dx.data, token, dx.pitch), 0,
                                                      kVector ? kThreadColumns : valid,
                                                      [](u32 j) { return j; });
  }
  __device__ __forceinline__ Before before(u32 row, bool exists) const {
    return load_eight<kAdded, Access::in_place, kVector>(
        element_of_row(added.data, row, added.pitch), 0, kAdds && exists ? valid : 0,
        [](u32 j) { return j; });
  }
  __device__ __forceinline__ void store(u32 row, bool exists, const Columns& sum) const {
    store_eight<kOut, kVector>(
        element_of_row(out.data, row, out.pitch), 0, exists ? valid : 0, [](u32 j) { return j; },
        sum);
  }

  // Sums the team's part of the sorted list and stores its rows except two: a row that begins in an
  // earlier part is left to that team, and the last row is returned, because later parts may
  // continue it. When four loads have been added, the next four reuse their registers, so that
  // about kTokens loads are always in flight.
  __device__ __forceinline__ u32 sum_part(TokenMatches& matches, const DealtRows& rows, u32 count,
                                          u32 teams, Columns& sum) const {
    const auto begin_of = [&](u32 team) {
      return count != 0 && team < teams ? matches.part_begins[team] : ceil_div(count, 4) * 4;
    };
    const u32 begin = begin_of(team());
    const u32 end = begin_of(team() + 1);
    const u32 first = begin < end ? matches.sorted[begin] : kBeginsRow;
    bool is_left = (first & kBeginsRow) == 0;
    u32 number = kNoRow;
    if (thread_index() % kTeamThreads == 0) {
      matches.part_row[team()] = is_left ? rows.number(first) : kNoRow;
    }
    const auto leave = [&] {
#pragma unroll
      for (u32 i = 0; i < kThreadColumns; ++i) matches.part[i][thread_index()] = sum.value[i];
    };
    struct alignas(16) Four {
      u32 match[4];
    };
    const auto four_at = [&](u32 at) {
      return *reinterpret_cast<const Four*>(&matches.sorted[at]);
    };
    Received loaded[kTokens];
    Before earlier[kTokens];
    const auto ask = [&](u32 slot, u32 at) {
      if (at >= end) return;
      const Four four = four_at(at);
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        loaded[slot + i] = received(rows.token(four.match[i]));
        if constexpr (kAdds) {
          const u32 row = rows.number(four.match[i]);
          const bool adds = (four.match[i] & kBeginsRow) != 0 && row < rows.count;
          earlier[slot + i] = before(adds ? rows.row(row) : 0, adds);
        }
      }
    };
#pragma unroll
    for (u32 i = 0; i < kTokens; i += 4) ask(i, begin + i);
    for (u32 base = begin; base < end; base += kTokens) {
#pragma unroll
      for (u32 some = 0; some < kTokens; some += 4) {
        if (base + some >= end) break;
        const Four four = four_at(base + some);
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          if ((four.match[i] & kBeginsRow) != 0) {
            if (is_left) {
              leave();
            } else {
              store(rows.row(number), number < rows.count, sum);
            }
            is_left = false;
            number = rows.number(four.match[i]);
            sum = {};
          }
          if constexpr (kAdds) sum = sum + values(earlier[some + i]);
          sum = sum + values(loaded[some + i]);
        }
        ask(some, base + some + kTokens);
      }
    }
    if (is_left) leave();
    return number;
  }

  // Adds the partial sums of a row that other teams left.
  __device__ __forceinline__ void add_parts(const TokenMatches& matches, u32 number,
                                            Columns& sum) const {
    for (u32 part = 0; part < kTeams; ++part) {
      if (matches.part_row[part] != number) continue;
      const u32 thread = part * kTeamThreads + thread_index() % kTeamThreads;
#pragma unroll
      for (u32 i = 0; i < kThreadColumns; ++i) sum.value[i] += matches.part[i][thread];
    }
  }

  // Adds the teams' sums of some tokens to a single row. Runs in one team.
  __device__ __forceinline__ void add_single(TokenMatches& matches, u32 row, bool is_first,
                                             bool is_last) const {
    Columns sum = values(before(row, is_first));
    for (u32 i = 0; i < kThreadColumns && !is_first; ++i) {
      sum.value[i] = matches.single[i][thread_index()];
    }
    add_parts(matches, 0, sum);
    store(row, is_last, sum);
    for (u32 i = 0; i < kThreadColumns; ++i) matches.single[i][thread_index()] = sum.value[i];
  }

  // Fills the rows from next_empty to behind - 1 that have no tokens with zeros, or with the added
  // values. Warps take four rows at a time.
  __device__ __forceinline__ void fill_empty_rows(TokenMatches& matches, const DealtRows& rows,
                                                  u32 behind) const {
    for (;;) {
      const u32 first = take_numbers(matches.next_empty, kEmptyRows);
      if (first >= behind) return;
      const u32 named = matches.named[first / 32] >> first % 32;
      Before earlier[kEmptyRows];
      bool is_empty[kEmptyRows];
#pragma unroll
      for (u32 i = 0; i < kEmptyRows; ++i) {
        is_empty[i] = first + i < behind && (named >> i & 1) == 0;
        earlier[i] = before(rows.row(first + i), is_empty[i]);
      }
#pragma unroll
      for (u32 i = 0; i < kEmptyRows; ++i) {
        Columns x{};
        if constexpr (kAdds) x = values(earlier[i]);
        store(rows.row(first + i), is_empty[i], x);
      }
    }
  }
};

template <Element kIn, Element kAdded, Element kOut, bool kAdds, RowNumbers kNumbers, bool kVector>
__device__ __forceinline__ void sum_rows(TokenMatches& matches, u32 columns, u32 table_rows,
                                         u32 tokens, u32 groups, u32 column_blocks,
                                         const MatrixRows& dx, u64 ids, const MatrixRows& added,
                                         const MatrixRows& out) {
  u32 token_bits = 1;
  while (1u << token_bits < tokens) ++token_bits;
  const u32 most_rows = smaller(kMostRows, (1u << (31 - token_bits)) - 1);
  const u32 column = block_index() % column_blocks * kGradientColumns +
                     thread_index() % kTeamThreads * kThreadColumns;
  const u32 loaded_column = kVector ? smaller(column, columns - kThreadColumns) : column;
  const GradientRows<kIn, kAdded, kOut, kAdds, kVector> gradient{
      thread_rows<kIn>(dx, loaded_column), thread_rows<kAdded>(added, column),
      thread_rows<kOut>(out, column), valid_columns(column, columns),
      !(kAdds && kAdded == kOut && added.data == out.data)};
  const u32 group = block_index() / column_blocks;
  const u32 dealt = ceil_div(table_rows - smaller(group, table_rows), groups);
  DealtRows rows{groups, group, ~0u / groups + 1, 0, smaller(dealt, most_rows), token_bits};
  bool is_single = false;  // a single row, kMostMatches tokens at a time
  for (u32 begin = 0, end = tokens; rows.count != 0;) {
    const u32 count = list_matches<kNumbers>(matches, ids, rows, begin, end);
    if (count > kMostMatches) {
      is_single = rows.count == 1;
      if (is_single) end = kMostMatches;
      rows.count = larger(rows.count / 2, 1);
      continue;
    }
    const u32 filled = gradient.fills && !is_single ? rows.count : 0;
    const u32 teams = smaller(kTeams, count * kTeamsOfMean / (tokens / groups + 1) + 1);
    sort_matches(matches, rows, count, is_single, teams,
                 [&] { gradient.fill_empty_rows(matches, rows, filled); });
    Elements<kThreadColumns> sum{};
    const u32 number = gradient.sum_part(matches, rows, count, teams, sum);
    synchronize_block();
    if (is_single) {
      if (gradient.team() == 0)
        gradient.add_single(matches, rows.row(0), begin == 0, end == tokens);
    } else if (number < rows.count) {
      gradient.add_parts(matches, number, sum);
      gradient.store(rows.row(number), true, sum);
    }
    gradient.fill_empty_rows(matches, rows, filled);
    synchronize_block();  // the next search overwrites the list
    if (end != tokens) {
      begin = end;
      end = smaller(tokens, end + kMostMatches);
      continue;
    }
    begin = 0;
    is_single = false;
    rows.first += rows.count;
    rows.count = smaller(dealt - rows.first, most_rows);
  }
}

// `added`: what the gradient is added to, if kAdds. For groups * column_blocks blocks; groups must
// be at least 2, and table_rows * groups at most 2^32.
template <Element kIn, Element kAdded, Element kOut, bool kAdds,
          RowNumbers kNumbers = RowNumbers::ids>
__device__ __forceinline__ void embedding_backward(TokenMatches& matches, u32 columns,
                                                   u32 table_rows, u32 tokens, u32 groups,
                                                   u32 column_blocks, MatrixRows dx, u64 ids,
                                                   MatrixRows added, MatrixRows out) {
  const bool vector = is_vector<kIn>(dx, columns) && is_vector<kOut>(out, columns) &&
                      (!kAdds || is_vector<kAdded>(added, columns));
  if (vector) {
    sum_rows<kIn, kAdded, kOut, kAdds, kNumbers, true>(matches, columns, table_rows, tokens, groups,
                                                       column_blocks, dx, ids, added, out);
  } else {
    sum_rows<kIn, kAdded, kOut, kAdds, kNumbers, false>(matches, columns, table_rows, tokens,
                                                        groups, column_blocks, dx, ids, added, out);
  }
}

}  // namespace coda::device
