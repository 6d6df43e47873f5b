// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index, and the adjoint: each row of the table's gradient is the sum of the
// rows that its tokens received, in the order of the tokens, so results repeat bitwise without
// scratch memory. A thread has eight neighbouring columns.
#pragma once

#include "device/lanes.cuh"
#include "device/vector_access.cuh"

namespace coda::device {

struct MatrixRows {
  u64 data;
  u32 stride;  // elements between rows
};

// Whether rows of so many columns are whole vectors.
template <Stored kStored>
constexpr bool is_vector(const MatrixRows& rows, u32 columns) {
  const u64 row_bytes = static_cast<u64>(rows.stride) * bytes_of(kStored);
  return (rows.data | row_bytes | columns * 2) % 16 == 0;
}

inline constexpr float kNotANumber = __builtin_bit_cast(float, 0x7fffffffu);
inline constexpr u32 kEmbeddingThreads = 256;
inline constexpr u32 kEmbeddingPieces = 4;  // that a thread copies

template <Stored kTable, Stored kOut, bool kVector>
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
    id[i] = token[i] < tokens ? load_index(ids, token[i]) : table_rows;
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
#pragma unroll
    for (float& value : x.value) value = id[i] < table_rows ? value : kNotANumber;
    store_eight<kOut, kVector>(
        out.data, row_start(token[i], out.stride), valid, [&](u32 j) { return column[i] + j; }, x);
  }
}

// A token outside the table gets NaN: a kernel cannot throw.
template <Stored kTable, Stored kOut>
__device__ __forceinline__ void embedding_forward(u32 columns, u32 table_rows, u32 tokens,
                                                  MatrixRows table, u64 ids, MatrixRows out) {
  if (is_vector<kTable>(table, columns) && is_vector<kOut>(out, columns)) {
    copy_rows<kTable, kOut, true>(columns, table_rows, tokens, table, ids, out);
  } else {
    copy_rows<kTable, kOut, false>(columns, table_rows, tokens, table, ids, out);
  }
}

// A block makes 64 rows by 2048 columns of the gradient: it looks through all tokens, lists those
// that fall into its rows, and sorts the list by row and token. Where it would be too long, the
// block does so for one row and 4096 tokens at a time.
inline constexpr u32 kGradientRows = 64;
inline constexpr u32 kGradientColumns = kEmbeddingThreads * kThreadColumns;
inline constexpr u32 kMostMatches = 4096;
inline constexpr u32 kMostTokens = 1u << 26;  // a match is row * kMostTokens + token

struct TokenMatches {
  u32 match[kMostMatches];
  u32 count;
};

struct RowRange {
  u32 first;
  u32 count;
};

// Lists tokens begin to end that name one of the rows, in any order, and returns how many there
// are; beyond kMostMatches the list is not whole.
__device__ __forceinline__ u32 find_matches(TokenMatches& matches, u64 ids, const RowRange& rows,
                                            u32 begin, u32 end) {
  constexpr u32 kBatch = 8;  // loads of a thread in flight
  if (thread_index() == 0) matches.count = 0;
  synchronize_block();
  for (u32 base = begin; base < end; base += kBatch * kEmbeddingThreads) {
    u32 id[kBatch];
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
      const u32 token = base + i * kEmbeddingThreads + thread_index();
      id[i] = token < end ? load_index(ids, token) : ~0u;
    }
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
      const u32 row = id[i] - rows.first;
      if (row >= rows.count) continue;
      const u32 place = take_place(matches.count);
      const u32 token = base + i * kEmbeddingThreads + thread_index();
      if (place < kMostMatches) matches.match[place] = row * kMostTokens + token;
    }
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
      for (u32 i = thread_index(); i < size; i += kEmbeddingThreads) {
        const u32 other = i ^ distance;
        if (other < i) continue;  // the pair is its first one's
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

template <Stored kIn, bool kVector>
struct ReceivedRows {
  MatrixRows dx;
  u32 column;
  u32 valid;

  // Adds those of matches begin to end, in their order.
  __device__ __forceinline__ void add(Elements<kThreadColumns>& sum, const TokenMatches& matches,
                                      u32 begin, u32 end) const {
    // Rows in flight: a token that every tenth of a text is has one block for all its rows.
    constexpr u32 kBatch = 16 / bytes_of(kIn);
    for (u32 first = begin; first < end; first += kBatch) {
      typename LoadedEight<kVector, kIn>::Type loaded[kBatch];
#pragma unroll
      for (u32 i = 0; i < kBatch; ++i) {
        const u32 match = first + i < end ? matches.match[first + i] : 0;
        loaded[i] = load_eight<kIn, Access::streamed, kVector>(
            dx.data, row_start(match % kMostTokens, dx.stride), first + i < end ? valid : 0,
            [&](u32 j) { return column + j; });
      }
#pragma unroll
      for (u32 i = 0; i < kBatch; ++i) {
        if (first + i < end) sum = sum + values(loaded[i]);
      }
    }
  }
};

template <Stored kIn, Stored kAdded, Stored kOut, bool kAdds, bool kVector>
__device__ __forceinline__ void sum_rows(TokenMatches& matches, u32 columns, u32 table_rows,
                                         u32 tokens, u32 column_blocks, const MatrixRows& dx,
                                         u64 ids, const MatrixRows& added, const MatrixRows& out) {
  constexpr u32 kBatch = 4;  // rows of the gradient in flight
  const u32 first_row = block_index() / column_blocks * kGradientRows;
  const RowRange rows{first_row, smaller(kGradientRows, table_rows - first_row)};
  const u32 column =
      block_index() % column_blocks * kGradientColumns + thread_index() * kThreadColumns;
  const u32 valid = valid_columns(column, columns);
  const auto columns_of = [&](u32 j) { return column + j; };
  const ReceivedRows<kIn, kVector> received{dx, column, valid};
  // Rows that receive nothing stay as they are.
  const bool in_place = kAdds && kAdded == kOut && added.data == out.data;
  const u32 count = find_matches(matches, ids, rows, 0, tokens);
  const bool is_listed = count <= kMostMatches;
  if (is_listed) sort_matches(matches, count);
  u32 at = 0;
  for (u32 first = 0; first < rows.count; first += kBatch) {
    if (in_place && is_listed) {
      if (at == count) return;
      if (matches.match[at] / kMostTokens >= first + kBatch) continue;
    }
    typename LoadedEight<kVector, kAdded>::Type before[kBatch];
    if constexpr (kAdds) {
#pragma unroll
      for (u32 r = 0; r < kBatch; ++r) {
        before[r] = load_eight<kAdded, Access::in_place, kVector>(
            added.data, row_start(rows.first + first + r, added.stride),
            first + r < rows.count ? valid : 0, columns_of);
      }
    }
#pragma unroll
    for (u32 r = 0; r < kBatch; ++r) {
      const u32 row = first + r;
      Elements<kThreadColumns> sum{};
      if constexpr (kAdds) sum = values(before[r]);
      if (is_listed) {
        u32 end = at;
        while (end < count && matches.match[end] / kMostTokens == row) ++end;
        received.add(sum, matches, at, end);
        at = end;
      } else if (row < rows.count) {
        for (u32 begin = 0; begin < tokens; begin += kMostMatches) {
          const u32 found = find_matches(matches, ids, {rows.first + row, 1}, begin,
                                         smaller(tokens, begin + kMostMatches));
          sort_matches(matches, found);
          received.add(sum, matches, 0, found);
          synchronize_block();  // the next search writes the list
        }
      }
      store_eight<kOut, kVector>(out.data, row_start(rows.first + row, out.stride),
                                 row < rows.count ? valid : 0, columns_of, sum);
    }
  }
}

// `added` is what the gradient is added to, if kAdds.
template <Stored kIn, Stored kAdded, Stored kOut, bool kAdds>
__device__ __forceinline__ void embedding_backward(TokenMatches& matches, u32 columns,
                                                   u32 table_rows, u32 tokens, u32 column_blocks,
                                                   MatrixRows dx, u64 ids, MatrixRows added,
                                                   MatrixRows out) {
  const bool vector = is_vector<kIn>(dx, columns) && is_vector<kOut>(out, columns) &&
                      (!kAdds || is_vector<kAdded>(added, columns));
  if (vector) {
    sum_rows<kIn, kAdded, kOut, kAdds, true>(matches, columns, table_rows, tokens, column_blocks,
                                             dx, ids, added, out);
  } else {
    sum_rows<kIn, kAdded, kOut, kAdds, false>(matches, columns, table_rows, tokens, column_blocks,
                                              dx, ids, added, out);
  }
}

}  // namespace coda::device
