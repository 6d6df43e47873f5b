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

// A block makes 256 rows by 256 columns of the gradient: it looks through all tokens, lists those
// that fall into its rows, and sorts the list by row and token. Its eight warps, as teams, take
// four rows each at a time; a row with many tokens, of which each text has a few, is all teams'.
// Where the list would be too long, the block makes fewer rows at a time, and a single row from
// 4096 tokens at a time.
inline constexpr u32 kTeamThreads = 32;
inline constexpr u32 kTeams = kEmbeddingThreads / kTeamThreads;
inline constexpr u32 kGradientRows = 256;
inline constexpr u32 kGradientColumns = kTeamThreads * kThreadColumns;
inline constexpr u32 kMostMatches = 4096;
inline constexpr u32 kManyTokens = 32;        // of a row: more are all teams'
inline constexpr u32 kMostTokens = 1u << 24;  // a match is row * kMostTokens + token

struct TokenMatches {
  u32 match[kMostMatches];
  u32 count;
  u32 first[kGradientRows + 1];  // match of each row, and of the one behind
  u32 long_row[kGradientRows];   // those with many tokens, in any order
  u32 long_rows;
  float sum[kTeams][kThreadColumns][kTeamThreads];
};

struct RowRange {
  u32 first;
  u32 count;
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
__device__ __forceinline__ void list_matches(TokenMatches& matches, u64 ids, const RowRange& rows,
                                             u32 begin, u32 end) {
  constexpr u32 kBatch = 4;  // loads of a thread in flight
  for (u32 base = begin + thread_index() * 4; base < end; base += kBatch * kEmbeddingThreads * 4) {
    u32 id[kBatch][4];
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
      load_ids<kNumbers, kVector>(id[i], ids, base + i * kEmbeddingThreads * 4, end);
    }
#pragma unroll
    for (u32 i = 0; i < kBatch * 4; ++i) {
      const u32 row = id[i / 4][i % 4] - rows.first;
      if (row >= rows.count) continue;
      const u32 place = take_place(matches.count);
      const u32 token = base + i / 4 * kEmbeddingThreads * 4 + i % 4;
      if (place < kMostMatches) matches.match[place] = row * kMostTokens + token;
    }
  }
}

// Lists tokens begin to end that name one of the rows, in any order, and returns how many there
// are; beyond kMostMatches the list is not whole.
template <RowNumbers kNumbers>
__device__ __forceinline__ u32 find_matches(TokenMatches& matches, u64 ids, const RowRange& rows,
                                            u32 begin, u32 end) {
  if (thread_index() == 0) matches.count = 0;
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

// Ascending, by a bitonic network.
__device__ __forceinline__ void sort_matches(TokenMatches& matches, u32 count) {
  u32 size = 1;
  while (size < count) size *= 2;
  for (u32 i = count + thread_index(); i < size; i += kEmbeddingThreads) matches.match[i] = ~0u;
  synchronize_block();
  for (u32 run = 2; run <= size; run *= 2) {
    for (u32 distance = run / 2; distance != 0; distance /= 2) {
      for (u32 pair = thread_index(); pair < size / 2; pair += kEmbeddingThreads) {
        const u32 i = 2 * pair - (pair & (distance - 1));
        const u32 other = i + distance;
        const u32 a = matches.match[i];
        const u32 b = matches.match[other];
        if ((a > b) == ((i & run) == 0)) {
          matches.match[i] = b;
          matches.match[other] = a;
        }
      }
      synchronize_block();
    }
  }
}

// Where the matches of each row begin, and which rows have many.
__device__ __forceinline__ void mark_rows(TokenMatches& matches, u32 rows, u32 count) {
  if (thread_index() == 0) matches.long_rows = 0;
  for (u32 row = thread_index(); row <= rows; row += kEmbeddingThreads) {
    u32 first = 0;
    for (u32 left = count; left != 0;) {  // matches from `first` on that may belong to rows before
      const u32 half = left / 2;
      const bool is_before = matches.match[first + half] / kMostTokens < row;
      first = is_before ? first + half + 1 : first;
      left = is_before ? left - half - 1 : half;
    }
    matches.first[row] = first;
  }
  synchronize_block();
  for (u32 row = thread_index(); row < rows; row += kEmbeddingThreads) {
    if (matches.first[row + 1] - matches.first[row] > kManyTokens) {
      matches.long_row[take_place(matches.long_rows)] = row;
    }
  }
  synchronize_block();
}

template <Element kIn, bool kVector>
struct ReceivedRows {
  static constexpr u32 kMany = 16 / bytes_of(kIn);  // rows in flight
  static constexpr u32 kFew = kMany / 2;
  MatrixRows dx;
  u32 column;
  u32 valid;

  using Loaded = typename LoadedEight<kVector, kIn>::Type;
  __device__ __forceinline__ Loaded load(const TokenMatches& matches, u32 match,
                                         bool exists) const {
    const u32 token = exists ? matches.match[match] % kMostTokens : 0;
    return load_eight<kIn, Access::streamed, kVector>(dx.data, row_start(token, dx.stride),
                                                      exists ? valid : 0,
                                                      [&](u32 j) { return column + j; });
  }

  // Adds those of matches begin to end, in their order: batch `first` and each `step`-th after it,
  // of kCount that are in flight together.
  template <u32 kCount>
  __device__ __forceinline__ void add(Elements<kThreadColumns>& sum, const TokenMatches& matches,
                                      u32 begin, u32 end, u32 first, u32 step) const {
    for (u32 match = begin + first * kCount; match < end; match += step * kCount) {
      Loaded loaded[kCount];
#pragma unroll
      for (u32 i = 0; i < kCount; ++i) loaded[i] = load(matches, match + i, match + i < end);
#pragma unroll
      for (u32 i = 0; i < kCount; ++i) {
        if (match + i < end) sum = sum + values(loaded[i]);
      }
    }
  }
};

// A block's columns of the gradient.
template <Element kIn, Element kAdded, Element kOut, bool kAdds, bool kVector>
struct GradientRows {
  static constexpr u32 kBatch = 4;  // rows of the gradient in flight
  ReceivedRows<kIn, kVector> received;
  MatrixRows added;
  MatrixRows out;

  using Loaded = typename LoadedEight<kVector, kAdded>::Type;
  __device__ __forceinline__ Loaded before(u32 row, bool exists) const {
    const u32 column = received.column;
    return load_eight<kAdded, Access::in_place, kVector>(added.data, row_start(row, added.stride),
                                                         kAdds && exists ? received.valid : 0,
                                                         [&](u32 j) { return column + j; });
  }
  __device__ __forceinline__ void store(u32 row, bool exists,
                                        const Elements<kThreadColumns>& sum) const {
    const u32 column = received.column;
    store_eight<kOut, kVector>(
        out.data, row_start(row, out.stride), exists ? received.valid : 0,
        [&](u32 j) { return column + j; }, sum);
  }

  // Those with few tokens, of which the matches are listed: each by a team.
  __device__ __forceinline__ void sum_short(const TokenMatches& matches,
                                            const RowRange& rows) const {
    // Rows that receive nothing stay as they are.
    const bool in_place = kAdds && kAdded == kOut && added.data == out.data;
    const u32 team = thread_index() / kTeamThreads;
    for (u32 first = team * kBatch; first < rows.count; first += kTeams * kBatch) {
      const u32 behind = smaller(first + kBatch, rows.count);
      if (in_place && matches.first[first] == matches.first[behind]) continue;
      Loaded loaded[kBatch];
      // Most rows have one token or none: the first ones of all rows are in flight together.
      typename ReceivedRows<kIn, kVector>::Loaded one[kBatch];
      u32 begin[kBatch];
      u32 count[kBatch];
#pragma unroll
      for (u32 r = 0; r < kBatch; ++r) {
        const u32 row = smaller(first + r, behind - 1);
        begin[r] = matches.first[row];
        count[r] = matches.first[row + 1] - begin[r];
        const bool is_short = first + r < behind && count[r] <= kManyTokens;
        loaded[r] = before(rows.first + row, is_short);
        one[r] = received.load(matches, begin[r], is_short && count[r] != 0);
      }
#pragma unroll
      for (u32 r = 0; r < kBatch; ++r) {
        if (first + r >= behind || count[r] > kManyTokens) continue;
        Elements<kThreadColumns> sum{};
        if constexpr (kAdds) sum = values(loaded[r]);
        if (count[r] != 0) {
          sum = sum + values(one[r]);
          received.template add<ReceivedRows<kIn, kVector>::kFew>(sum, matches, begin[r] + 1,
                                                                  begin[r] + count[r], 0, 1);
        }
        store(rows.first + first + r, true, sum);
      }
    }
  }

  // The teams' sums of one row become one, and are stored.
  __device__ __forceinline__ void store_long(TokenMatches& matches, u32 row,
                                             const Elements<kThreadColumns>& own) const {
    const u32 team = thread_index() / kTeamThreads;
    const u32 thread = thread_index() % kTeamThreads;
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; ++i) matches.sum[team][i][thread] = own.value[i];
    synchronize_block();
    if (team == 0) {
      Elements<kThreadColumns> sum{};
      if constexpr (kAdds) sum = values(before(row, true));
#pragma unroll
      for (u32 i = 0; i < kThreadColumns; ++i) {
        for (u32 other = 0; other < kTeams; ++other) sum.value[i] += matches.sum[other][i][thread];
      }
      store(row, true, sum);
    }
    synchronize_block();
  }
};

template <Element kIn, Element kAdded, Element kOut, bool kAdds, RowNumbers kNumbers, bool kVector>
__device__ __forceinline__ void sum_rows(TokenMatches& matches, u32 columns, u32 table_rows,
                                         u32 tokens, u32 column_blocks, const MatrixRows& dx,
                                         u64 ids, const MatrixRows& added, const MatrixRows& out) {
  const u32 first_row = block_index() / column_blocks * kGradientRows;
  const u32 behind = smaller(table_rows, first_row + kGradientRows);
  const u32 team = thread_index() / kTeamThreads;
  const u32 column = block_index() % column_blocks * kGradientColumns +
                     thread_index() % kTeamThreads * kThreadColumns;
  const GradientRows<kIn, kAdded, kOut, kAdds, kVector> gradient{
      {dx, column, valid_columns(column, columns)}, added, out};
  RowRange rows{first_row, behind - first_row};
  while (rows.count != 0) {
    const u32 count = find_matches<kNumbers>(matches, ids, rows, 0, tokens);
    if (count > kMostMatches && rows.count > 1) {
      rows.count /= 2;
      continue;
    }
    if (count <= kMostMatches) {
      sort_matches(matches, count);
      mark_rows(matches, rows.count, count);
      gradient.sum_short(matches, rows);
      for (u32 i = 0; i < matches.long_rows; ++i) {
        const u32 row = matches.long_row[i];
        Elements<kThreadColumns> sum{};
        gradient.received.template add<ReceivedRows<kIn, kVector>::kMany>(
            sum, matches, matches.first[row], matches.first[row + 1], team, kTeams);
        gradient.store_long(matches, rows.first + row, sum);
      }
    } else {
      Elements<kThreadColumns> sum{};
      for (u32 begin = 0; begin < tokens; begin += kMostMatches) {
        const u32 found = find_matches<kNumbers>(matches, ids, rows, begin,
                                                 smaller(tokens, begin + kMostMatches));
        sort_matches(matches, found);
        gradient.received.template add<ReceivedRows<kIn, kVector>::kMany>(sum, matches, 0, found,
                                                                          team, kTeams);
        synchronize_block();  // the next search writes the list
      }
      gradient.store_long(matches, rows.first, sum);
    }
    synchronize_block();  // the next search writes the list
    rows = {rows.first + rows.count, behind - rows.first - rows.count};
  }
}

// `added` is what the gradient is added to, if kAdds.
template <Element kIn, Element kAdded, Element kOut, bool kAdds,
          RowNumbers kNumbers = RowNumbers::ids>
__device__ __forceinline__ void embedding_backward(TokenMatches& matches, u32 columns,
                                                   u32 table_rows, u32 tokens, u32 column_blocks,
                                                   MatrixRows dx, u64 ids, MatrixRows added,
                                                   MatrixRows out) {
  const bool vector = is_vector<kIn>(dx, columns) && is_vector<kOut>(out, columns) &&
                      (!kAdds || is_vector<kAdded>(added, columns));
  if (vector) {
    sum_rows<kIn, kAdded, kOut, kAdds, kNumbers, true>(matches, columns, table_rows, tokens,
                                                       column_blocks, dx, ids, added, out);
  } else {
    sum_rows<kIn, kAdded, kOut, kAdds, kNumbers, false>(matches, columns, table_rows, tokens,
                                                        column_blocks, dx, ids, added, out);
  }
}

}  // namespace coda::device
