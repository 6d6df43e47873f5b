# SPDX-License-Identifier: Apache-2.0
# Building the GPU backend needs no CUDA: the driver and NVRTC are loaded at run time. The library
# embeds device/, because the source that NVRTC compiles includes it.
coda_embed(gpu/jit device_texts device/*.cuh)
target_link_libraries(coda_gpu_jit PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
