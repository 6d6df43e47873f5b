# SPDX-License-Identifier: Apache-2.0
# The operations' kernels for the CPU: Highway for vector code compiled once per instruction set
# (plain, AVX2, AVX-512) and picked at run time, OpenMP for threads.
find_library(CODA_HWY hwy REQUIRED)
target_link_libraries(coda_operations PRIVATE ${CODA_HWY} OpenMP::OpenMP_CXX)
target_compile_definitions(coda_operations
  PRIVATE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL)")
# A multiplication and an addition are never joined behind our back: every instantiation of a kernel
# gives the same bits.
target_compile_options(coda_operations PRIVATE -ffp-contract=off)
# Tiles of the GPU's kernels are those of device/.
target_include_directories(coda_operations PRIVATE ${PROJECT_SOURCE_DIR})
