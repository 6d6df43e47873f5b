# SPDX-License-Identifier: Apache-2.0
# Initial values are drawn by all threads, in loops that are compiled once per instruction set.
# Products are never contracted into sums, and a root does not set errno, so that it can be a vector
# instruction: the bits are the same on every processor.
target_link_libraries(coda_models PRIVATE ${CODA_HWY} OpenMP::OpenMP_CXX)
target_compile_definitions(coda_models
  PRIVATE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL)")
target_compile_options(coda_models PRIVATE -fno-math-errno -ffp-contract=off)
