# SPDX-License-Identifier: Apache-2.0
# config_parity_test.cc finds its Python script and .venv in this folder.
target_compile_definitions(${target} PRIVATE CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
