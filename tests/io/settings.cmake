# SPDX-License-Identifier: Apache-2.0
# Where the parity test finds the judge's script and Python.
target_compile_definitions(${target} PRIVATE CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
