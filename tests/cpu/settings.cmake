# SPDX-License-Identifier: Apache-2.0
# The tests pick instruction sets through Highway; programs run once more with libxsmm's kernels for
# AVX2, which it picks when it starts.
target_link_libraries(cpu_test PRIVATE ${CODA_HWY})
target_compile_definitions(cpu_test PRIVATE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL)")
# The tests read the example programs.
target_compile_definitions(cpu_test PRIVATE CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
# The plans that the block benchmark compares are tested here.
target_link_libraries(cpu_test PRIVATE coda_block)
gtest_discover_tests(cpu_test DISCOVERY_MODE PRE_TEST TEST_PREFIX avx2.
                     TEST_FILTER "CpuProgram.*:TileGemm.*" TEST_LIST cpu_avx2_tests
                     PROPERTIES ENVIRONMENT LIBXSMM_TARGET=hsw)
