# SPDX-License-Identifier: Apache-2.0
# Tests read the example programs and the golden plans.
target_compile_definitions(${target} PRIVATE CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
