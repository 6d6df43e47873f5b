// SPDX-License-Identifier: Apache-2.0
// Moves eight neighbouring columns of a row between memory and registers: 16 bytes at a time if
// rows and columns allow it, else element by element. Loaded values keep their storage type until
// they are used, so that many loads are in flight in few registers.
#pragma once

#include "device/ptx/global_memory.cuh"
#include "device/tiles/tile_position.cuh"
#include "device/values/elements.cuh"

namespace coda::device {

// The first element of a row.
constexpr u64 row_start(u32 row, u32 pitch) { return static_cast<u64>(row) * pitch; }

// A row's element of a vector with a pitch of `pitch` bytes, computed by one multiply-add. It stays
// a pointer throughout; otherwise the load would use the generic address space.
__device__ __forceinline__ u64 element_of_row(u64 tensor, u32 row, u32 pitch) {
  return reinterpret_cast<u64>(reinterpret_cast<const char*>(tensor) +
                               static_cast<u64>(row) * pitch);
}
template <Element kStored>
__device__ __forceinline__ float load_of_row(u64 tensor, u32 row, u32 pitch) {
  return load_element<kStored>(element_of_row(tensor, row, pitch), 0);
}
__device__ __forceinline__ u32 index_of_row(u64 tensor, u32 row, u32 pitch) {
  return load_index(element_of_row(tensor, row, pitch), 0);
}

// In memory order: pieces of 16 bytes, or half a piece for one-byte elements.
template <Element kStored, u32 kBytes = bytes_of(kStored)>
struct PackedEight {
  static constexpr u32 kPieces = kBytes * kThreadColumns / 16;
  u32 word[kPieces][4];
};
template <Element kStored>
struct PackedEight<kStored, 1> {
  u32 word[2];
};

template <Access kAccess, Element kStored>
__device__ __forceinline__ void load_packed(PackedEight<kStored>& x, u64 address) {
  if constexpr (bytes_of(kStored) == 1) {
    load_half_piece<kAccess>(x.word, address);
  } else {
#pragma unroll
    for (u32 i = 0; i < PackedEight<kStored>::kPieces; ++i) {
      load_piece<kAccess>(x.word[i], address + i * 16);
    }
  }
}
template <Element kStored>
__device__ __forceinline__ void store_packed(u64 address, const PackedEight<kStored>& x) {
  if constexpr (bytes_of(kStored) == 1) {
    store_half_piece(address, x.word);
  } else {
#pragma unroll
    for (u32 i = 0; i < PackedEight<kStored>::kPieces; ++i) {
      store_piece(address + i * 16, x.word[i]);
    }
  }
}

// 16-bit elements stay packed however they are loaded, because registers are the scarcest resource,
// even on a path that is not taken.
template <bool kVector, Element kStored, bool kPacked = kVector || is_16_bits(kStored)>
struct LoadedEight {
  using Type = Elements<kThreadColumns>;
};
template <bool kVector, Element kStored>
struct LoadedEight<kVector, kStored, true> {
  using Type = PackedEight<kStored>;
};

template <Element kStored>
__device__ __forceinline__ Elements<kThreadColumns> values(const PackedEight<kStored>& packed) {
  Elements<kThreadColumns> x;
  if constexpr (bytes_of(kStored) == 1) {
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; ++i) {
      x.value[i] = from_eight_bits<kStored>(static_cast<u8>(packed.word[i / 4] >> (8 * (i % 4))));
    }
  } else {
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; i += bytes_of(kStored) == 2 ? 2 : 1) {
      const u32(&piece)[4] = packed.word[i * bytes_of(kStored) / 16];
      const u32 word = i * bytes_of(kStored) / 4 % 4;
      if constexpr (bytes_of(kStored) == 2) {
        unpack<kStored>(piece[word], x.value[i], x.value[i + 1]);
      } else if constexpr (bytes_of(kStored) == 4) {
        x.value[i] = word_value<kStored>(piece[word]);
      } else {
        x.value[i] = double_value(piece[word], piece[word + 1]);
      }
    }
  }
  return x;
}
__device__ __forceinline__ const Elements<kThreadColumns>& values(
    const Elements<kThreadColumns>& x) {
  return x;
}

template <Element kStored>
__device__ __forceinline__ PackedEight<kStored> packed(const Elements<kThreadColumns>& x) {
  PackedEight<kStored> result;
  if constexpr (bytes_of(kStored) == 1) {
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const u32 low = two_eight_bits<kStored>(x.value[4 * i], x.value[4 * i + 1]);
      const u32 high = two_eight_bits<kStored>(x.value[4 * i + 2], x.value[4 * i + 3]);
      result.word[i] = low | high << 16;
    }
  } else {
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; i += bytes_of(kStored) == 2 ? 2 : 1) {
      u32(&piece)[4] = result.word[i * bytes_of(kStored) / 16];
      const u32 word = i * bytes_of(kStored) / 4 % 4;
      if constexpr (bytes_of(kStored) == 2) {
        piece[word] = pack<kStored>(x.value[i], x.value[i + 1]);
      } else if constexpr (bytes_of(kStored) == 4) {
        piece[word] = float_word(x.value[i]);
      } else {
        double_words(x.value[i], piece[word], piece[word + 1]);
      }
    }
  }
  return result;
}

// `column(i)` is the position of element i; for vectors column(0) to column(7) are adjacent, and
// `valid` is 0 or 8. `row`: the element at which the row starts. Elements that do not exist are 0.
template <Element kStored, Access kAccess, bool kVector, class Column>
__device__ __forceinline__ typename LoadedEight<kVector, kStored>::Type load_eight(
    u64 tensor, u64 row, u32 valid, const Column& column) {
  typename LoadedEight<kVector, kStored>::Type x{};
  if constexpr (kVector) {
    const u64 address = tensor + (row + column(0)) * bytes_of(kStored);
    if (valid != 0) load_packed<kAccess>(x, address);
  } else if constexpr (bytes_of(kStored) == 2) {
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; ++i) {
      if (i >= valid) continue;
      const u32 half = reinterpret_cast<const u16*>(tensor)[row + column(i)];
      x.word[0][i / 2] |= half << (16 * (i % 2));
    }
  } else {
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; ++i) {
      if (i < valid) x.value[i] = load_element<kStored>(tensor, row + column(i));
    }
  }
  return x;
}

template <Element kStored, bool kVector, class Column>
__device__ __forceinline__ void store_eight(u64 tensor, u64 row, u32 valid, const Column& column,
                                            const Elements<kThreadColumns>& x) {
  if constexpr (kVector) {
    const PackedEight<kStored> words = packed<kStored>(x);
    const u64 address = tensor + (row + column(0)) * bytes_of(kStored);
    if (valid != 0) store_packed(address, words);
  } else {
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; ++i) {
      if (i < valid) store_element<kStored>(tensor, row + column(i), x.value[i]);
    }
  }
}

// Eight adjacent pairs of a row: sixteen neighbouring columns, with the first members at even
// positions. `column(i)`: the position of the first member of pair i.
template <Element kStored>
struct PackedPairs {
  PackedEight<kStored> half[2];
};
struct SplitPairs {
  Elements<kThreadColumns> member[2];
};

template <bool kVector, Element kStored>
struct LoadedPairs {
  using Type = SplitPairs;
};
template <Element kStored>
struct LoadedPairs<true, kStored> {
  using Type = PackedPairs<kStored>;
};

template <u32 kMember, Element kStored>
__device__ __forceinline__ Elements<kThreadColumns> members(const PackedPairs<kStored>& pairs) {
  const Elements<kThreadColumns> half[2] = {values(pairs.half[0]), values(pairs.half[1])};
  Elements<kThreadColumns> x;
#pragma unroll
  for (u32 i = 0; i < kThreadColumns; ++i) {
    x.value[i] = half[2 * i / kThreadColumns].value[2 * i % kThreadColumns + kMember];
  }
  return x;
}
template <u32 kMember>
__device__ __forceinline__ const Elements<kThreadColumns>& members(const SplitPairs& pairs) {
  return pairs.member[kMember];
}

template <Element kStored, Access kAccess, bool kVector, class Column>
__device__ __forceinline__ typename LoadedPairs<kVector, kStored>::Type load_pairs(
    u64 tensor, u64 row, u32 valid, const Column& column) {
  typename LoadedPairs<kVector, kStored>::Type x{};
  if constexpr (kVector) {
    const u64 address = tensor + (row + column(0)) * bytes_of(kStored);
    if (valid != 0) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        load_packed<kAccess>(x.half[i], address + i * kThreadColumns * bytes_of(kStored));
      }
    }
  } else {
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; ++i) {
      if (i >= valid) continue;
      x.member[0].value[i] = load_element<kStored>(tensor, row + column(i));
      x.member[1].value[i] = load_element<kStored>(tensor, row + column(i) + 1);
    }
  }
  return x;
}

template <Element kStored, bool kVector, class Column>
__device__ __forceinline__ void store_pairs(u64 tensor, u64 row, u32 valid, const Column& column,
                                            const Elements<kThreadColumns>& first,
                                            const Elements<kThreadColumns>& second) {
  if constexpr (kVector) {
    const u64 address = tensor + (row + column(0)) * bytes_of(kStored);
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
      Elements<kThreadColumns> x;
#pragma unroll
      for (u32 i = 0; i < kThreadColumns; ++i) {
        const u32 pair = (half * kThreadColumns + i) / 2;
        x.value[i] = i % 2 == 0 ? first.value[pair] : second.value[pair];
      }
      const PackedEight<kStored> words = packed<kStored>(x);
      if (valid != 0) store_packed(address + half * kThreadColumns * bytes_of(kStored), words);
    }
  } else {
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; ++i) {
      if (i >= valid) continue;
      store_element<kStored>(tensor, row + column(i), first.value[i]);
      store_element<kStored>(tensor, row + column(i) + 1, second.value[i]);
    }
  }
}

// The value as a later reader of a tensor of this type sees it.
template <Element kStored>
__device__ __forceinline__ Elements<kThreadColumns> rounded(const Elements<kThreadColumns>& x) {
  return values(packed<kStored>(x));
}

// column(0), ..., column(7) as floats. Columns of a vector are neighbours, and the first is even.
template <bool kVector, class Column>
__device__ __forceinline__ auto column_indices(const Column& column) {
  if constexpr (kVector) {
    ColumnRun x;
    x.first = column(0);
    const float first = static_cast<float>(x.first);
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; ++i) x.value[i] = first + static_cast<float>(i);
    return x;
  } else {
    Elements<kThreadColumns> x;
#pragma unroll
    for (u32 i = 0; i < kThreadColumns; ++i) x.value[i] = static_cast<float>(column(i));
    return x;
  }
}

}  // namespace coda::device
