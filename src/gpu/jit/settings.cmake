# SPDX-License-Identifier: Apache-2.0
# The GPU backend needs no CUDA to build: the driver and NVRTC are opened at run time. What NVRTC
# compiles includes device/.
coda_embed(gpu/jit device_texts device/*.cuh)
target_link_libraries(coda_gpu_jit PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
