// SPDX-License-Identifier: Apache-2.0
// wgmma whose left operand lies in registers: 64 rows of 16 elements, in the layout of the
// accumulators of such a block rounded to 16 bits. The right operand is in shared memory,
// contiguous along its columns. The fences are those of wgmma.cuh.
// Invariant: until the `wgmma_wait` that retires the group, nothing writes the left operand.
#pragma once

#include "device/sm90/ptx/wgmma.cuh"

namespace coda::device {

// Macros, because an asm statement takes only literals. CODA_NAMES_n: the names of its first n
// operands. CODA_SUMS_n(i): the n accumulators from d[i] on, bound to these names in order.
#define CODA_NAMES_32                                                                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CODA_NAMES_64                                                                            \
  CODA_NAMES_32                                                                                  \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CODA_NAMES_128                                                                           \
  CODA_NAMES_64                                                                                  \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
  "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "   \
  "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, "   \
  "%115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define CODA_SUMS_8(i)                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define CODA_SUMS_16(i) CODA_SUMS_8(i), CODA_SUMS_8(i + 8)
#define CODA_SUMS_32(i) CODA_SUMS_16(i), CODA_SUMS_16(i + 16)
#define CODA_SUMS_64(i) CODA_SUMS_32(i), CODA_SUMS_32(i + 32)
#define CODA_SUMS_128(i) CODA_SUMS_64(i), CODA_SUMS_64(i + 64)

// The operands behind the sums: the left one's four registers and the right one's descriptor.
#define CODA_WGMMA_REGISTERS(n, type, names, sums, operands)                             \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" names \
               "}, " operands ", 1, 1, 1, 1;"                                            \
               : sums                                                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                      \
               : "memory")
#define CODA_WGMMA_REGISTERS_OF_SIZE(type)                                                         \
  if constexpr (kN == 64) {                                                                        \
    CODA_WGMMA_REGISTERS("64", type, CODA_NAMES_32, CODA_SUMS_32(0), "{%32, %33, %34, %35}, %36"); \
  } else if constexpr (kN == 128) {                                                                \
    CODA_WGMMA_REGISTERS("128", type, CODA_NAMES_64, CODA_SUMS_64(0),                              \
                         "{%64, %65, %66, %67}, %68");                                             \
  } else {                                                                                         \
    CODA_WGMMA_REGISTERS("256", type, CODA_NAMES_128, CODA_SUMS_128(0),                            \
                         "{%128, %129, %130, %131}, %132");                                        \
  }

// d += a · b
template <u32 kN, Element kElement>
__device__ __forceinline__ void wgmma_of_registers(float (&d)[kN / 2], const u32 (&a)[4], u64 b) {
  static_assert(is_16_bits(kElement));
  static_assert(kN == 64 || kN == 128 || kN == 256, "no wgmma wrapper for this N");
  if constexpr (kElement == Element::bf16) {
    CODA_WGMMA_REGISTERS_OF_SIZE("bf16")
  } else {
    CODA_WGMMA_REGISTERS_OF_SIZE("f16")
  }
}

// Keeps a left operand in its registers up to the preceding wait.
template <u32 kSteps>
__device__ __forceinline__ void pin_registers(u32 (&words)[kSteps][4]) {
#pragma unroll
  for (u32 i = 0; i < 4 * kSteps; ++i) asm volatile("" : "+r"(words[i / 4][i % 4])::"memory");
}

#undef CODA_NAMES_32
#undef CODA_NAMES_64
#undef CODA_NAMES_128
#undef CODA_SUMS_8
#undef CODA_SUMS_16
#undef CODA_SUMS_32
#undef CODA_SUMS_64
#undef CODA_SUMS_128
#undef CODA_WGMMA_REGISTERS
#undef CODA_WGMMA_REGISTERS_OF_SIZE

}  // namespace coda::device
