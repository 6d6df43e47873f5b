// SPDX-License-Identifier: Apache-2.0
// The handlers of chains (see chain_machine.h). `each` runs a body over the accumulator's vectors;
// a body is made of the instruction's streams and maps vector k of the chunk. Included once per
// instruction set, hence the toggled guard.
#if defined(CODA_CPU_CHAIN_HANDLERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CODA_CPU_CHAIN_HANDLERS_INL_H_
#undef CODA_CPU_CHAIN_HANDLERS_INL_H_
#else
#define CODA_CPU_CHAIN_HANDLERS_INL_H_
#endif

#include <bit>

#include "cpu/chain_machine.h"
#include "cpu/vector_storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coda::cpu::HWY_NAMESPACE {

constexpr int64_t kLanes = hn::MaxLanes(F32());
constexpr int64_t kChunk = kChunkVectors * kLanes;
static_assert(kChunk <= kWidestChunk);

// What a body is made of: the instruction, the streams at this chunk and how many columns are left
// in the row. More vectors than registers for arguments would be passed in memory.
struct At {
  const Instruction* instruction;
  const int64_t* streams;
  int64_t cols;

  template <class T>
  T* a() const {
    return std::bit_cast<T*>(streams[instruction->a]);
  }
  template <class T>
  T* b() const {
    return std::bit_cast<T*>(streams[instruction->b]);
  }
  const char* ahead() const { return std::bit_cast<const char*>(streams[instruction->c]); }
  // Of vector k, how many columns there are.
  int64_t valid(int64_t k) const { return HWY_MAX(int64_t{0}, HWY_MIN(kLanes, cols - k * kLanes)); }
};

using Run = void (*)(const Instruction*, const int64_t*, int64_t, Vec, Vec, Vec, Vec, Vec, Vec, Vec,
                     Vec);

HWY_INLINE void run_next(const At& at, Vec v0, Vec v1, Vec v2, Vec v3, Vec v4, Vec v5, Vec v6,
                         Vec v7) {
  const Instruction* next = at.instruction + 1;
  return reinterpret_cast<Run>(next->handler)(next, at.streams, at.cols, v0, v1, v2, v3, v4, v5, v6,
                                              v7);
}

inline void end(const Instruction* /*i*/, const int64_t* /*s*/, int64_t /*cols*/, Vec /*v0*/,
                Vec /*v1*/, Vec /*v2*/, Vec /*v3*/, Vec /*v4*/, Vec /*v5*/, Vec /*v6*/,
                Vec /*v7*/) {}

// Of a ragged chunk only the vectors that have columns are computed, two by two.
template <class Body, bool kRagged>
void each(const Instruction* i, const int64_t* s, int64_t cols, Vec v0, Vec v1, Vec v2, Vec v3,
          Vec v4, Vec v5, Vec v6, Vec v7) {
  const At at{i, s, cols};
  const Body body(at);
  v0 = body(0, v0);
  v1 = body(1, v1);
  if (!kRagged || cols > 2 * kLanes) {
    v2 = body(2, v2);
    v3 = body(3, v3);
  }
  if (!kRagged || cols > 4 * kLanes) {
    v4 = body(4, v4);
    v5 = body(5, v5);
  }
  if (!kRagged || cols > 6 * kLanes) {
    v6 = body(6, v6);
    v7 = body(7, v7);
  }
  return run_next(at, v0, v1, v2, v3, v4, v5, v6, v7);
}

// An operand's vector k.
struct Plane {
  const float* data;
  explicit Plane(const float* p) : data(p) {}
  HWY_INLINE Vec operator()(int64_t k) const { return hn::LoadU(F32(), data + k * kLanes); }
};
struct Constant {
  Vec value;
  explicit Constant(const float* p) : value(set(*p)) {}
  HWY_INLINE Vec operator()(int64_t /*k*/) const { return value; }
};

template <class A>
struct Fetch {
  A a;
  explicit Fetch(const At& at) : a(at.a<const float>()) {}
  HWY_INLINE Vec operator()(int64_t k, Vec /*v*/) const { return a(k); }
};

struct Keep {
  float* data;
  explicit Keep(const At& at) : data(at.a<float>()) {}
  HWY_INLINE Vec operator()(int64_t k, Vec v) const {
    hn::StoreU(v, F32(), data + k * kLanes);
    return v;
  }
};

struct ColumnSum {
  float* data;
  explicit ColumnSum(const At& at) : data(at.a<float>()) {}
  HWY_INLINE Vec operator()(int64_t k, Vec v) const {
    hn::StoreU(hn::Add(hn::LoadU(F32(), data + k * kLanes), v), F32(), data + k * kLanes);
    return v;
  }
};

template <class Function>
struct Unary {
  explicit Unary(const At& /*at*/) {}
  HWY_INLINE Vec operator()(int64_t /*k*/, Vec v) const { return Function()(v); }
};

template <class Function, int kWhich, class A>
struct Binary {
  A a;
  explicit Binary(const At& at) : a(at.a<const float>()) {}
  HWY_INLINE Vec operator()(int64_t k, Vec v) const {
    return kWhich == 0 ? Function()(v, a(k)) : Function()(a(k), v);
  }
};

template <class Function, int kWhich, class A, class B>
struct Ternary {
  A a;
  B b;
  explicit Ternary(const At& at) : a(at.a<const float>()), b(at.b<const float>()) {}
  HWY_INLINE Vec operator()(int64_t k, Vec v) const {
    if constexpr (kWhich == 0) return Function()(v, a(k), b(k));
    if constexpr (kWhich == 1) return Function()(a(k), v, b(k));
    return Function()(a(k), b(k), v);
  }
};

// Asks for `vectors` of them, on from the offset of vector k.
template <class T>
HWY_INLINE void ask_ahead(const At& at, int64_t k, int64_t vectors) {
  const char* p = at.ahead() + at.b<const int64_t>()[k] * static_cast<int64_t>(sizeof(T));
  const int64_t bytes = vectors * kLanes * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
}

// Loads, by how the columns lie.
template <class As>
struct LoadNeighbours {
  const typename As::T* data;
  explicit LoadNeighbours(const At& at)
      : data(at.a<const typename As::T>() + *at.b<const int64_t>()) {
    ask_ahead<typename As::T>(at, 0, kChunkVectors);
  }
  HWY_INLINE Vec operator()(int64_t k, Vec /*v*/) const { return As::load(data + k * kLanes); }
};

template <class As>
struct LoadTwos {
  const At& at;
  explicit LoadTwos(const At& place) : at(place) {}
  HWY_INLINE Vec operator()(int64_t k, Vec /*v*/) const {
    const int64_t second = k % 2;
    if (second == 0) ask_ahead<typename As::T>(at, k, 2);
    return As::load(at.a<const typename As::T>() + at.b<const int64_t>()[k - second] +
                    second * kLanes);
  }
};

template <class As>
struct LoadRagged {
  const At& at;
  explicit LoadRagged(const At& place) : at(place) {}
  HWY_INLINE Vec operator()(int64_t k, Vec /*v*/) const {
    ask_ahead<typename As::T>(at, k, 1);
    const auto* p = at.a<const typename As::T>() + at.b<const int64_t>()[k];
    const int64_t n = at.valid(k);
    if (n == kLanes) return As::load(p);
    return n > 0 ? load_part<As>(p, n) : hn::Zero(F32());
  }
};

// Stores. Two vectors of 16-bit values are stored as one.
template <class As>
HWY_INLINE void store_two_at(const At& at, int64_t k, Vec v0, Vec v1) {
  ask_ahead<typename As::T>(at, k, 2);
  store_two<As>(v0, v1, at.a<typename As::T>() + at.b<const int64_t>()[k]);
}

template <class As>
void store_twos(const Instruction* i, const int64_t* s, int64_t cols, Vec v0, Vec v1, Vec v2,
                Vec v3, Vec v4, Vec v5, Vec v6, Vec v7) {
  const At at{i, s, cols};
  store_two_at<As>(at, 0, v0, v1);
  if (cols > 2 * kLanes) store_two_at<As>(at, 2, v2, v3);
  if (cols > 4 * kLanes) store_two_at<As>(at, 4, v4, v5);
  if (cols > 6 * kLanes) store_two_at<As>(at, 6, v6, v7);
  return run_next(at, v0, v1, v2, v3, v4, v5, v6, v7);
}

template <class As>
void store_neighbours(const Instruction* i, const int64_t* s, int64_t cols, Vec v0, Vec v1, Vec v2,
                      Vec v3, Vec v4, Vec v5, Vec v6, Vec v7) {
  const At at{i, s, cols};
  ask_ahead<typename As::T>(at, 0, kChunkVectors);
  auto* p = at.a<typename As::T>() + *at.b<const int64_t>();
  store_two<As>(v0, v1, p);
  store_two<As>(v2, v3, p + 2 * kLanes);
  store_two<As>(v4, v5, p + 4 * kLanes);
  store_two<As>(v6, v7, p + 6 * kLanes);
  return run_next(at, v0, v1, v2, v3, v4, v5, v6, v7);
}

template <class As>
struct StoreRagged {
  const At& at;
  explicit StoreRagged(const At& place) : at(place) {}
  HWY_INLINE Vec operator()(int64_t k, Vec v) const {
    ask_ahead<typename As::T>(at, k, 1);
    auto* p = at.a<typename As::T>() + at.b<const int64_t>()[k];
    const int64_t n = at.valid(k);
    if (n == kLanes) {
      As::store(v, p);
    } else if (n > 0) {
      store_part<As>(v, p, n);
    }
    return v;
  }
};

// Adds what there is of vector k to the lanes of a sum.
template <bool kRagged>
HWY_INLINE Vec add_valid(const At& at, int64_t k, Vec sum, Vec v) {
  if constexpr (kRagged) {
    v = hn::IfThenElseZero(hn::FirstN(F32(), static_cast<size_t>(at.valid(k))), v);
  }
  return hn::Add(sum, v);
}

// The lanes' sums over a span that begins with vector k of the chunk. A span is four vectors with
// the widest ones, eight with those half as wide.
template <bool kRagged>
HWY_INLINE Vec add_four(const At& at, int64_t k, Vec sum, Vec v0, Vec v1, Vec v2, Vec v3) {
  sum = add_valid<kRagged>(at, k, sum, v0);
  sum = add_valid<kRagged>(at, k + 1, sum, v1);
  sum = add_valid<kRagged>(at, k + 2, sum, v2);
  return add_valid<kRagged>(at, k + 3, sum, v3);
}

template <bool kRagged, bool kTwo>
void row_sum(const Instruction* i, const int64_t* s, int64_t cols, Vec v0, Vec v1, Vec v2, Vec v3,
             Vec v4, Vec v5, Vec v6, Vec v7) {
  const At at{i, s, cols};
  Vec low = hn::Zero(F32());
  Vec high = low;
  constexpr bool kOneSpan = kChunk == kPartialSpan;
  if constexpr (kTwo) {
    const Plane p(at.b<const float>());
    low = add_four<kRagged>(at, 0, low, p(0), p(1), p(2), p(3));
    if constexpr (kOneSpan) {
      low = add_four<kRagged>(at, 4, low, p(4), p(5), p(6), p(7));
    } else {
      high = add_four<kRagged>(at, 4, high, p(4), p(5), p(6), p(7));
    }
  }
  low = add_four<kRagged>(at, 0, low, v0, v1, v2, v3);
  if constexpr (kOneSpan) {
    low = add_four<kRagged>(at, 4, low, v4, v5, v6, v7);
  } else {
    high = add_four<kRagged>(at, 4, high, v4, v5, v6, v7);
  }
  at.a<float>()[0] = hn::GetLane(hn::SumOfLanes(F32(), low));
  if (!kOneSpan && (!kRagged || cols > kPartialSpan)) {
    at.a<float>()[1] = hn::GetLane(hn::SumOfLanes(F32(), high));
  }
  return run_next(at, v0, v1, v2, v3, v4, v5, v6, v7);
}

}  // namespace coda::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
