# SPDX-License-Identifier: Apache-2.0
# Host code of the GPU backend includes files of device/: the index mathematics.
target_include_directories(coda_gpu_target PUBLIC ${PROJECT_SOURCE_DIR})
