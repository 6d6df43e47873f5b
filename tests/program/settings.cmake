# SPDX-License-Identifier: Apache-2.0
# The tests read the example programs.
target_compile_definitions(${target} PRIVATE CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
