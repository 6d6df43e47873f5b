# SPDX-License-Identifier: Apache-2.0
# Included when operations_test is made: one test reads the public headers.
target_compile_definitions(${target} PRIVATE CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
