# SPDX-License-Identifier: Apache-2.0
# Host code of the GPU backend includes the index arithmetic in device/.
target_include_directories(coda_gpu_target PUBLIC ${PROJECT_SOURCE_DIR})
