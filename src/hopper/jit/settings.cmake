# SPDX-License-Identifier: Apache-2.0
# The Hopper backend needs no CUDA to build: the driver and NVRTC are opened at run time. What NVRTC
# compiles includes device/, whose texts are embedded in the library.
file(GLOB_RECURSE CODA_DEVICE_TEXTS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/device/*.cuh)
set(CODA_EMBEDDED_TEXTS ${PROJECT_BINARY_DIR}/hopper/embedded_device_texts.cc)
add_custom_command(OUTPUT ${CODA_EMBEDDED_TEXTS}
  COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DOUTPUT=${CODA_EMBEDDED_TEXTS}
          -P ${PROJECT_SOURCE_DIR}/cmake/embed_device_texts.cmake
  DEPENDS ${CODA_DEVICE_TEXTS} ${PROJECT_SOURCE_DIR}/cmake/embed_device_texts.cmake
  COMMENT "Embedding device/")
target_sources(coda_hopper_jit PRIVATE ${CODA_EMBEDDED_TEXTS})
target_link_libraries(coda_hopper_jit PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
