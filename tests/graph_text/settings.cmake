# SPDX-License-Identifier: Apache-2.0
# Texts of models' graphs, and of their backward; faces/ is read from the sources.
target_link_libraries(${target} PRIVATE coda_models coda_plan coda_rewrite)
target_compile_definitions(${target} PRIVATE CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
