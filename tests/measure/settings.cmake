# SPDX-License-Identifier: Apache-2.0
# The programs of programs/ are read from the sources.
target_compile_definitions(${target} PRIVATE CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
