# SPDX-License-Identifier: Apache-2.0
# Tests of the Hopper backend that need no GPU. NVRTC comes from the Python package
# nvidia-cuda-nvrtc, which is installed in .venv after the build was configured, or from wherever
# the library finds it; tests that need it are skipped without it.
target_include_directories(hopper_test PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(hopper_test PRIVATE CODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
set(nvrtc_environment "VIRTUAL_ENV=${PROJECT_SOURCE_DIR}/.venv")
set(discover_arguments PROPERTIES ENVIRONMENT "${nvrtc_environment}")

target_link_libraries(hopper_test PRIVATE hopper_table_variants)

# Emitted kernels are compiled for the CPU too.
target_compile_definitions(hopper_test PRIVATE CODA_CXX_COMPILER="${CMAKE_CXX_COMPILER}")

# A driver without a GPU, which tests of the backend open as they would open NVIDIA's.
add_library(fake_cuda SHARED ${PROJECT_SOURCE_DIR}/tests/hopper/fake_cuda.cc)
target_include_directories(fake_cuda PRIVATE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(hopper_test PRIVATE CODA_FAKE_CUDA="$<TARGET_FILE:fake_cuda>")
add_dependencies(hopper_test fake_cuda)
