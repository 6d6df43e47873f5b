# SPDX-License-Identifier: Apache-2.0
# Host code of the Hopper backend includes device/*.cuh: the index mathematics.
target_include_directories(coda_hopper_legalise PUBLIC ${PROJECT_SOURCE_DIR})
