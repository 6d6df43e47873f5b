# SPDX-License-Identifier: Apache-2.0
target_link_libraries(train_test PRIVATE coda_cpu)
# The program's own file calls, for tests of what a crash loses.
target_sources(train_test PRIVATE ${PROJECT_SOURCE_DIR}/tests/train/lost_writes.cc)
# What a GPU's kernels take in addition, for the table of docs/memory.md.
target_link_libraries(train_test PRIVATE coda_gpu)
target_compile_definitions(train_test PRIVATE CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
