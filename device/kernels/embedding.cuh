// SPDX-License-Identifier: Apache-2.0
// Rows of a table by number, and the adjoint: each row of the table's gradient is the sum of the
// rows that its tokens received. Who adds what depends on the tokens and on nothing else, so
// results repeat bitwise without scratch memory. A thread has eight neighbouring columns.
#pragma once

#include "device/ptx/lanes.cuh"
#include "device/tiles/vector_access.cuh"

namespace coda::device {

struct MatrixRows {
  u64 data;
  u32 stride;  // elements between rows
};

// Whether rows of so many columns are whole vectors.
template <Element kStored>
constexpr bool is_vector(const MatrixRows& rows, u32 columns) {
  const u64 row_bytes = static_cast<u64>(rows.stride) * bytes_of(kStored);
  return (rows.data | row_bytes | columns * 2) % 16 == 0;
}

inline constexpr float kNotANumber = __builtin_bit_cast(float, 0x7fffffffu);
inline constexpr u32 kEmbeddingThreads = 256;
inline constexpr u32 kEmbeddingPieces = 4;  // that a thread copies

// Where row numbers come from: ids of a text are i32 and name a row each; those that a program
// computed are fp32, and -1 stands for no row.
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
  const u32 pieces = ceil_div(columns, kThreadColumns);  // of a row
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

// A token outside the table gets NaN: a kernel cannot throw. No row gives zeros.
template <Element kTable, Element kOut, RowNumbers kNumbers = RowNumbers::ids>
__device__ __forceinline__ void embedding_forward(u32 columns, u32 table_rows, u32 tokens,
                                                  MatrixRows table, u64 ids, MatrixRows out) {
  if (is_vector<kTable>(table, columns) && is_vector<kOut>(out, columns)) {
    copy_rows<kTable, kOut, kNumbers, true>(columns, table_rows, tokens, table, ids, out);
  } else {
    copy_rows<kTable, kOut, kNumbers, false>(columns, table_rows, tokens, table, ids, out);
  }
}

// Rows of the gradient are dealt out: of `groups` blocks for the same 256 columns, block g makes
// rows g, g + groups and so on, as frequent tokens are neighbours in the tables of real texts. A
// block looks through all tokens once, lists those that name its rows, and brings those of a row
// together. Its sixteen warps, as teams, sum equal parts of the list, wherever rows end in it: one
// row of many tokens has as many loads in flight as many rows of one. A row that lies in several
// parts is added up by the team that has its first token. A quarter of the rows that no token names
// are written before the list is in order, so that memory works meanwhile. Where the list would be
// too long, the block makes fewer rows at a time, and a single row from 8192 tokens at a time.
inline constexpr u32 kGradientThreads = 512;
inline constexpr u32 kTeamThreads = 32;
inline constexpr u32 kTeams = kGradientThreads / kTeamThreads;
inline constexpr u32 kGradientColumns = kTeamThreads * kThreadColumns;
inline constexpr u32 kMostMatches = 8192;
inline constexpr u32 kMostRows = 16384;  // of a block at a time

struct TokenMatches {
  // A match is the number of its row, among those at hand, << token_bits | token.
  union {
    u32 listed[kMostMatches];
    // What each team summed of a row that begins in another team's part.
    float part[kThreadColumns][kGradientThreads];
  };
  u32 sorted[kMostMatches];
  u16 place[kMostMatches];  // of a listed match among those of its row
  u32 part_row[kTeams];     // of `part`: the row's number; kNoRow where there is none
  u32 counted[kTeams];      // by each warp
  // 0 for a row without tokens, else one more than how many matches of it have their places, and
  // then than where they begin in `sorted`.
  u16 row_state[kMostRows];
};

// Rows group + (first + i) * groups of the table, i from 0 to count - 1.
struct DealtRows {
  u32 groups;
  u32 group;
  u32 reciprocal;  // 2^32 / groups, rounded up: exact for rows of the table, never too small
  u32 first;
  u32 count;
  u32 token_bits;

  __device__ __forceinline__ u32 row(u32 i) const { return group + (first + i) * groups; }
};

// Four tokens' rows; kNoRow where there is no token.
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

// Of all threads' numbers: the sum of those before this thread's, and the sum of all. Threads
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

// Lists tokens begin to end that name one of the rows and returns how many there are; beyond
// kMostMatches the list is not whole. It is in the order of the threads that look at tokens, so
// that it is always the same. What is no row of the table has too late a turn.
template <RowNumbers kNumbers>
__device__ __forceinline__ u32 list_matches(TokenMatches& matches, u64 ids, const DealtRows& rows,
                                            u32 begin, u32 end) {
  constexpr u32 kLoads = 8;  // of a thread, in flight
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
    u32 found = 0;  // one bit for each
#pragma unroll
    for (u32 i = 0; i < kLoads * 4; ++i) {
      u32& row = id[i / 4][i % 4];
      const u32 turn = static_cast<u32>(static_cast<u64>(row) * rows.reciprocal >> 32);
      const bool is_mine = row - turn * rows.groups == rows.group;
      row = turn - rows.first;
      if (is_mine && row < rows.count) found |= 1u << i;
    }
    const CountedInOrder counted = count_in_order(matches, count_bits(found));
    u32 place = listed + counted.before;
    listed += counted.all;
#pragma unroll
    for (u32 i = 0; i < kLoads * 4; ++i) {
      if ((found >> i & 1) == 0) continue;
      const u32 number = id[i / 4][i % 4];
      const u32 token = base + i / 4 * kStep + i % 4;
      matches.row_state[number] = 1;
      if (place < kMostMatches) matches.listed[place] = number << rows.token_bits | token;
      ++place;
    }
    synchronize_block();
  }
  return listed;
}

// Brings matches of a row together: rows in the order of their first matches, matches of a row in
// the order of the list. A match gets its place among those of its row first among the 32 of a
// warp; then one warp adds, 32 after 32, how many came before.
__device__ __forceinline__ void sort_matches(TokenMatches& matches, const DealtRows& rows,
                                             u32 count) {
  const u32 lane = thread_index() % 32;
  const u32 padded = ceil_div(count, 32) * 32;
  const auto row_of = [&](u32 i) { return matches.listed[i] >> rows.token_bits; };
  constexpr u32 kMatches = 256;  // place + kMatches * how many there are, in one u16
  for (u32 i = thread_index(); i < padded; i += kGradientThreads) {
    const u32 same = lanes_with_same(i < count ? row_of(i) : kNoRow);
    const u32 place = count_bits(same & ((1u << lane) - 1));
    matches.place[i] = static_cast<u16>(place + count_bits(same) * kMatches);
  }
  synchronize_block();
  if (thread_index() < 32) {
    constexpr u32 kAhead = 4;  // loaded before they are needed
    for (u32 base = lane; base < padded; base += kAhead * 32) {
      u32 row[kAhead];
      u32 place[kAhead];
#pragma unroll
      for (u32 k = 0; k < kAhead; ++k) {
        const u32 i = base + k * 32;
        row[k] = i < count ? row_of(i) : 0;
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
  synchronize_block();
  const u32 each = ceil_div(count, kGradientThreads);
  const u32 first = thread_index() * each;
  const u32 behind = smaller(first + each, count);
  u32 mine = 0;  // matches of rows whose first is one of the thread's
  for (u32 i = first; i < behind; ++i) {
    if (matches.place[i] == 0) mine += matches.row_state[row_of(i)] - 1;
  }
  u32 next = count_in_order(matches, mine).before;
  for (u32 i = first; i < behind; ++i) {
    if (matches.place[i] != 0) continue;
    u16& state = matches.row_state[row_of(i)];
    const u32 matches_of_row = state - 1;
    state = static_cast<u16>(next + 1);
    next += matches_of_row;
  }
  synchronize_block();
  for (u32 i = thread_index(); i < count; i += kGradientThreads) {
    matches.sorted[matches.row_state[row_of(i)] - 1 + matches.place[i]] = matches.listed[i];
  }
  synchronize_block();
}

// A thread's columns of the gradient.
template <Element kIn, Element kAdded, Element kOut, bool kAdds, bool kVector>
struct GradientRows {
  // In flight: rows of tokens, and rows that no token names.
  static constexpr u32 kWidest = kAdds ? larger(bytes_of(kIn), bytes_of(kAdded)) : bytes_of(kIn);
  static constexpr u32 kTokens = kVector ? (kAdds ? 16 : 32) / kWidest : 1;
  static constexpr u32 kEmptyRows = kVector ? 4 : 1;
  MatrixRows dx;
  MatrixRows added;
  MatrixRows out;
  u32 column;
  u32 valid;

  using Columns = Elements<kThreadColumns>;
  using Received = typename LoadedEight<kVector, kIn>::Type;
  using Before = typename LoadedEight<kVector, kAdded>::Type;

  static __device__ __forceinline__ u32 team() { return thread_index() / kTeamThreads; }

  __device__ __forceinline__ Received received(u32 token, bool exists) const {
    return load_eight<kIn, Access::streamed, kVector>(dx.data, row_start(token, dx.stride),
                                                      exists ? valid : 0,
                                                      [&](u32 j) { return column + j; });
  }
  __device__ __forceinline__ Before before(u32 row, bool exists) const {
    return load_eight<kAdded, Access::in_place, kVector>(added.data, row_start(row, added.stride),
                                                         kAdds && exists ? valid : 0,
                                                         [&](u32 j) { return column + j; });
  }
  __device__ __forceinline__ void store(u32 row, bool exists, const Columns& sum) const {
    store_eight<kOut, kVector>(
        out.data, row_start(row, out.stride), exists ? valid : 0, [&](u32 j) { return column + j; },
        sum);
  }

  // Sums the team's part of the sorted list and stores its rows, but for two: a row that begins in
  // another part is left for the team there, and the last row is returned, as other parts may have
  // more of it. Of a single row, all parts are left. Where some loads have been added, the next
  // ones take their registers at once, so that about kTokens are always in flight.
  __device__ __forceinline__ u32 sum_part(TokenMatches& matches, const DealtRows& rows, u32 count,
                                          bool is_single, Columns& sum) const {
    constexpr u32 kAtOnce = smaller(4, kTokens);
    const u32 begin = static_cast<u32>(static_cast<u64>(count) * team() / kTeams);
    const u32 end = static_cast<u32>(static_cast<u64>(count) * (team() + 1) / kTeams);
    const u32 token_mask = (1u << rows.token_bits) - 1;
    const auto number_of = [&](u32 i) { return matches.sorted[i] >> rows.token_bits; };
    u32 number = begin < end ? number_of(begin) : kNoRow;
    bool is_left = begin < end && (is_single || (begin != 0 && number_of(begin - 1) == number));
    if (thread_index() % kTeamThreads == 0) matches.part_row[team()] = is_left ? number : kNoRow;
    const auto leave = [&] {
#pragma unroll
      for (u32 i = 0; i < kThreadColumns; ++i) matches.part[i][thread_index()] = sum.value[i];
    };
    Received loaded[kTokens];
    Before earlier[kTokens];
    u32 begins = 0;     // of rows: a bit for each load in flight
    u32 last = number;  // that was asked for
    const bool has_first = begin < end && !is_left;
    const auto ask = [&](u32 slot, u32 at) {  // what does not exist is 0
      const bool exists = at < end;
      const u32 match = exists ? matches.sorted[at] : 0;
      const u32 row = exists ? match >> rows.token_bits : last;
      const bool is_new = row != last;
      loaded[slot] = received(match & token_mask, exists);
      begins = (begins & ~(1u << slot)) | (is_new ? 1u << slot : 0);
      if constexpr (kAdds) {
        const bool adds = is_new || (has_first && at == begin);
        earlier[slot] = before(adds ? rows.row(row) : 0, adds);
      }
      last = row;
    };
#pragma unroll
    for (u32 i = 0; i < kTokens; ++i) ask(i, begin + i);
    for (u32 base = begin; base < end; base += kTokens) {
#pragma unroll
      for (u32 some = 0; some < kTokens; some += kAtOnce) {
        if (base + some >= end) break;
#pragma unroll
        for (u32 i = some; i < some + kAtOnce; ++i) {
          if ((begins >> i & 1) != 0) {
            if (is_left) {
              leave();
            } else {
              store(rows.row(number), true, sum);
            }
            is_left = false;
            number = number_of(base + i);
            sum = {};
          }
          if constexpr (kAdds) sum = sum + values(earlier[i]);
          sum = sum + values(loaded[i]);
        }
#pragma unroll
        for (u32 i = some; i < some + kAtOnce; ++i) ask(i, base + kTokens + i);
      }
    }
    if (is_left) leave();
    return is_left ? kNoRow : number;
  }

  // Adds what teams left of a row.
  __device__ __forceinline__ void add_parts(const TokenMatches& matches, u32 number,
                                            Columns& sum) const {
    for (u32 part = 0; part < kTeams; ++part) {
      if (matches.part_row[part] != number) continue;
      const u32 thread = part * kTeamThreads + thread_index() % kTeamThreads;
#pragma unroll
      for (u32 i = 0; i < kThreadColumns; ++i) sum.value[i] += matches.part[i][thread];
    }
  }

  // Rows first to behind - 1 that no token names become zeros, or what was there before.
  __device__ __forceinline__ void fill_empty_rows(const TokenMatches& matches,
                                                  const DealtRows& rows, u32 first,
                                                  u32 behind) const {
    if (kAdds && kAdded == kOut && added.data == out.data) return;
    for (u32 base = first + team() * kEmptyRows; base < behind; base += kTeams * kEmptyRows) {
      Before earlier[kEmptyRows];
      bool is_empty[kEmptyRows];
#pragma unroll
      for (u32 i = 0; i < kEmptyRows; ++i) {
        is_empty[i] = base + i < behind && matches.row_state[base + i] == 0;
        earlier[i] = before(rows.row(base + i), is_empty[i]);
      }
#pragma unroll
      for (u32 i = 0; i < kEmptyRows; ++i) {
        Columns x{};
        if constexpr (kAdds) x = values(earlier[i]);
        store(rows.row(base + i), is_empty[i], x);
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
  const u32 most_rows = smaller(kMostRows, 1u << (32 - token_bits));
  const u32 column = block_index() % column_blocks * kGradientColumns +
                     thread_index() % kTeamThreads * kThreadColumns;
  const GradientRows<kIn, kAdded, kOut, kAdds, kVector> gradient{dx, added, out, column,
                                                                 valid_columns(column, columns)};
  const u32 group = block_index() / column_blocks;
  const u32 dealt = ceil_div(table_rows - smaller(group, table_rows), groups);
  DealtRows rows{groups, group, ~0u / groups + 1, 0, smaller(dealt, most_rows), token_bits};
  bool is_single = false;          // one row, from kMostMatches tokens at a time
  Elements<kThreadColumns> all{};  // of a single row's tokens so far
  // Each part of the work stands here once, as code that is run once comes from far.
  for (u32 begin = 0, end = tokens; rows.count != 0;) {
    const u32 count = list_matches<kNumbers>(matches, ids, rows, begin, end);
    if (count > kMostMatches) {
      is_single = rows.count == 1;
      if (is_single) end = kMostMatches;
      rows.count = larger(rows.count / 2, 1);
      continue;
    }
    const u32 filled = is_single ? 0 : rows.count;
    gradient.fill_empty_rows(matches, rows, 0, filled / 4);
    sort_matches(matches, rows, count);
    Elements<kThreadColumns> sum{};
    const u32 number = gradient.sum_part(matches, rows, count, is_single, sum);
    synchronize_block();
    if (is_single) {
      if constexpr (kAdds) {
        if (begin == 0) all = values(gradient.before(rows.row(0), true));
      }
      gradient.add_parts(matches, 0, all);
      if (end == tokens) gradient.store(rows.row(0), gradient.team() == 0, all);
    } else if (number != kNoRow) {
      gradient.add_parts(matches, number, sum);
      gradient.store(rows.row(number), true, sum);
    }
    gradient.fill_empty_rows(matches, rows, filled / 4, filled);
    synchronize_block();  // the next search writes the list
    if (end != tokens) {
      begin = end;
      end = smaller(tokens, end + kMostMatches);
      continue;
    }
    begin = 0;
    all = {};
    is_single = false;
    rows.first += rows.count;
    rows.count = smaller(dealt - rows.first, most_rows);
  }
}

// `added` is what the gradient is added to, if kAdds. Of groups * column_blocks blocks; groups is 2
// or more, and table_rows * groups at most 2^32.
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
