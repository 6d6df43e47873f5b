# SPDX-License-Identifier: Apache-2.0
# The CPU backend's libraries: libxsmm (static, no BLAS behind it) for GEMM kernels made at run
# time, Highway for vector code compiled once per instruction set (plain, AVX2, AVX-512) and picked
# at run time, OpenMP for threads.
find_library(CODA_LIBXSMM xsmm REQUIRED)
find_library(CODA_LIBXSMM_EXT xsmmext REQUIRED)
find_library(CODA_LIBXSMM_NOBLAS xsmmnoblas REQUIRED)
find_library(CODA_HWY hwy REQUIRED)
# When a program starts libxsmm opens /tmp/.libxsmm.<user>, a name that anybody may have made a link
# to a file of the user's. Our copy of it opens nothing (tile_gemm.cc).
set(contained ${PROJECT_BINARY_DIR}/libxsmm_contained.a)
execute_process(
  COMMAND ${CMAKE_OBJCOPY} --redefine-sym open=coda_open_nothing ${CODA_LIBXSMM} ${contained}
  COMMAND_ERROR_IS_FATAL ANY)
target_link_libraries(coda_cpu PRIVATE ${CODA_LIBXSMM_EXT} ${contained}
                      ${CODA_LIBXSMM_NOBLAS} ${CODA_HWY} OpenMP::OpenMP_CXX Threads::Threads
                      ${CMAKE_DL_LIBS} m)
target_compile_definitions(coda_cpu PRIVATE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL)")
# A multiplication and an addition are never joined behind our back: every instantiation of a kernel
# gives the same bits.
target_compile_options(coda_cpu PRIVATE -ffp-contract=off)
