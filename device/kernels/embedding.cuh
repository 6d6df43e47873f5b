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
// block looks through all tokens once, lists those that name its rows, and sorts the list by row
// and token, while half of the rows that no token names are on their way to memory. Its sixteen
// warps, as teams, sum equal parts of the list, wherever rows end in it: one row of many tokens has
// as many loads in flight as many rows of one. A row that lies in several parts is added up by the
// team that has its first token. Where the list would be too long, the block makes fewer rows at a
// time, and a single row from 4096 tokens at a time.
inline constexpr u32 kGradientThreads = 512;
inline constexpr u32 kTeamThreads = 32;
inline constexpr u32 kTeams = kGradientThreads / kTeamThreads;
inline constexpr u32 kGradientColumns = kTeamThreads * kThreadColumns;
inline constexpr u32 kMostMatches = 4096;
inline constexpr u32 kMostRows = 16384;  // of a block at a time

struct TokenMatches {
  u32 match[kMostMatches];  // number of the row among those at hand << token_bits | token
  union {
    u32 moved[kMostMatches];  // while they are sorted
    // What each team summed of a row that begins in another team's part.
    float part[kThreadColumns][kGradientThreads];
  };
  u32 part_row[kTeams];  // that row's number; kNoRow where there is none
  u32 count;
  u32 has_tokens[kMostRows / 32];  // a bit for each row
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
template <RowNumbers kNumbers, bool kVector>
__device__ __forceinline__ void load_ids(u32 (&id)[4], u64 ids, u32 token, u32 end) {
#pragma unroll
  for (u32 i = 0; i < 4; ++i) id[i] = kNoRow;
  if constexpr (kVector) {
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

template <RowNumbers kNumbers, bool kVector>
__device__ __forceinline__ void list_matches(TokenMatches& matches, u64 ids, const DealtRows& rows,
                                             u32 begin, u32 end) {
  constexpr u32 kBatch = kVector ? 8 : 1;  // loads of a thread in flight
  constexpr u32 kStep = kGradientThreads * 4;
  for (u32 base = begin + thread_index() * 4; base < end; base += kBatch * kStep) {
    u32 id[kBatch][4];
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
      load_ids<kNumbers, kVector>(id[i], ids, base + i * kStep, end);
    }
    u32 found = 0;  // one bit for each
#pragma unroll
    for (u32 i = 0; i < kBatch * 4; ++i) {
      u32& row = id[i / 4][i % 4];
      const u32 turn = static_cast<u32>(static_cast<u64>(row) * rows.reciprocal >> 32);
      const bool is_mine = row - turn * rows.groups == rows.group;
      row = turn - rows.first;
      if (is_mine && row < rows.count) found |= 1u << i;
    }
    if (found == 0) continue;
    u32 place = take_places(matches.count, count_bits(found));
#pragma unroll
    for (u32 i = 0; i < kBatch * 4; ++i) {
      if ((found >> i & 1) == 0) continue;
      const u32 number = id[i / 4][i % 4];
      const u32 token = base + i / 4 * kStep + i % 4;
      set_bits(matches.has_tokens[number / 32], 1u << number % 32);
      if (place < kMostMatches) matches.match[place] = number << rows.token_bits | token;
      ++place;
    }
  }
}

// Lists tokens begin to end that name one of the rows, in any order, and returns how many there
// are; beyond kMostMatches the list is not whole. What is no row of the table has too late a turn.
template <RowNumbers kNumbers>
__device__ __forceinline__ u32 find_matches(TokenMatches& matches, u64 ids, const DealtRows& rows,
                                            u32 begin, u32 end) {
  if (thread_index() == 0) matches.count = 0;
  for (u32 word = thread_index(); word < ceil_div(rows.count, 32); word += kGradientThreads) {
    matches.has_tokens[word] = 0;
  }
  synchronize_block();
  if (ids % 16 == 0 && (begin | end) % 4 == 0) {
    list_matches<kNumbers, true>(matches, ids, rows, begin, end);
  } else {
    list_matches<kNumbers, false>(matches, ids, rows, begin, end);
  }
  synchronize_block();
  const u32 count = matches.count;
  synchronize_block();  // before the next search begins
  return count;
}

// Ascending, no two alike: runs of 32 by counting how many of a run are smaller, then two runs at a
// time become one, where an element stands behind those of its own run and those of the other one
// that are smaller.
__device__ __forceinline__ void sort_matches(TokenMatches& matches, u32 count) {
  constexpr u32 kSame = 2;  // elements of a thread, searched for side by side
  const u32 padded = ceil_div(count, 32) * 32;
  for (u32 i = count + thread_index(); i < padded; i += kGradientThreads) matches.match[i] = ~0u;
  synchronize_block();
  for (u32 i = thread_index(); i < count; i += kGradientThreads) {
    const u32 run = i & ~31u;
    const u32 match = matches.match[i];
    u32 place = run;
#pragma unroll
    for (u32 j = 0; j < 32; ++j) place += matches.match[run + j] < match ? 1 : 0;
    matches.moved[place] = match;
  }
  synchronize_block();
  bool is_moved = true;
  for (u32 bits = 5; 1u << bits < count; ++bits) {
    const u32(&from)[kMostMatches] = is_moved ? matches.moved : matches.match;
    u32(&to)[kMostMatches] = is_moved ? matches.match : matches.moved;
    const u32 size = 1u << bits;  // of a run
    for (u32 base = thread_index(); base < count; base += kSame * kGradientThreads) {
      u32 match[kSame];
      u32 other[kSame];  // where the other run begins
      u32 length[kSame];
      u32 before[kSame];  // of the other run
#pragma unroll
      for (u32 k = 0; k < kSame; ++k) {
        const u32 i = base + k * kGradientThreads;
        match[k] = i < count ? from[i] : 0;
        other[k] = (i >> bits ^ 1) << bits;
        length[k] = smaller(size, count - smaller(count, other[k]));
        before[k] = 0;
      }
      for (u32 step = size; step != 0; step /= 2) {
#pragma unroll
        for (u32 k = 0; k < kSame; ++k) {
          const u32 behind = before[k] + step;
          const bool exists = behind <= length[k];
          const u32 last = from[exists ? other[k] + behind - 1 : 0];
          before[k] = exists && last < match[k] ? behind : before[k];
        }
      }
#pragma unroll
      for (u32 k = 0; k < kSame; ++k) {
        const u32 i = base + k * kGradientThreads;
        if (i < count) to[(i & ~size) + before[k]] = match[k];
      }
    }
    is_moved = !is_moved;
    synchronize_block();
  }
  if (is_moved) {
    for (u32 i = thread_index(); i < count; i += kGradientThreads) {
      matches.match[i] = matches.moved[i];
    }
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
  // more of it. Of a single row, all parts are left.
  __device__ __forceinline__ u32 sum_part(TokenMatches& matches, const DealtRows& rows, u32 count,
                                          bool is_single, Columns& sum) const {
    const u32 begin = static_cast<u32>(static_cast<u64>(count) * team() / kTeams);
    const u32 end = static_cast<u32>(static_cast<u64>(count) * (team() + 1) / kTeams);
    const u32 token_mask = (1u << rows.token_bits) - 1;
    const auto number_of = [&](u32 i) { return matches.match[i] >> rows.token_bits; };
    const auto begins = [&](u32 i) {
      return !is_single && (i == 0 || number_of(i - 1) != number_of(i));
    };
    u32 number = begin < end ? number_of(begin) : kNoRow;
    bool is_left = begin < end && !begins(begin);
    if (thread_index() % kTeamThreads == 0) matches.part_row[team()] = is_left ? number : kNoRow;
    const auto leave = [&] {
#pragma unroll
      for (u32 i = 0; i < kThreadColumns; ++i) matches.part[i][thread_index()] = sum.value[i];
    };
    for (u32 base = begin; base < end; base += kTokens) {
      Received loaded[kTokens];
      Before earlier[kTokens];
#pragma unroll
      for (u32 i = 0; i < kTokens; ++i) {
        const u32 at = base + i;
        const bool exists = at < end;
        loaded[i] = received(exists ? matches.match[at] & token_mask : 0, exists);
        if constexpr (kAdds) {
          const bool first = exists && begins(at);
          earlier[i] = before(first ? rows.row(number_of(at)) : 0, first);
        }
      }
#pragma unroll
      for (u32 i = 0; i < kTokens; ++i) {
        const u32 at = base + i;
        if (at >= end) break;
        if (number_of(at) != number) {
          if (is_left) {
            leave();
          } else {
            store(rows.row(number), true, sum);
          }
          is_left = false;
          number = number_of(at);
          sum = {};
        }
        if constexpr (kAdds) sum = sum + values(earlier[i]);
        sum = sum + values(loaded[i]);
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

  // Rows first to behind - 1 that no token names become zeros, or what was there before; `first` is
  // a multiple of kEmptyRows.
  __device__ __forceinline__ void fill_empty_rows(const TokenMatches& matches,
                                                  const DealtRows& rows, u32 first,
                                                  u32 behind) const {
    if (kAdds && kAdded == kOut && added.data == out.data) return;
    for (u32 base = first + team() * kEmptyRows; base < behind; base += kTeams * kEmptyRows) {
      const u32 has_tokens = matches.has_tokens[base / 32] >> base % 32;
      Before earlier[kEmptyRows];
      bool is_empty[kEmptyRows];
#pragma unroll
      for (u32 i = 0; i < kEmptyRows; ++i) {
        is_empty[i] = base + i < behind && (has_tokens >> i & 1) == 0;
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
    const u32 count = find_matches<kNumbers>(matches, ids, rows, begin, end);
    if (count > kMostMatches) {
      is_single = rows.count == 1;
      if (is_single) end = kMostMatches;
      rows.count = larger(rows.count / 2, 1);
      continue;
    }
    const u32 filled = is_single ? 0 : rows.count;
    const u32 half = filled / 2 / gradient.kEmptyRows * gradient.kEmptyRows;
    gradient.fill_empty_rows(matches, rows, 0, half);
    sort_matches(matches, count);
    Elements<kThreadColumns> sum{};
    const u32 number = gradient.sum_part(matches, rows, count, is_single, sum);
    gradient.fill_empty_rows(matches, rows, half, filled);
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
